"""Kubernetes quantities, exact: parsed as Kubernetes 1.36 does, converted only where the answer is right."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["Format", "Quantity", "QuantityError", "RangeError"]

_GRAMMAR = re.compile(r"([+-]?)(0*)([0-9]*)(?:(\.)([0-9]*))?(([eEinumkKMGTP]*)[+-]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LETTERS = {power: letter for letter, power in _DECIMAL.items()}
# Digits that Kubernetes takes before a binary suffix without its slow form.
_FAST_BINARY = {10: 11, 20: 8, 30: 5, 40: 2}
_FAST_DIGITS = 18
_NANO = -9
_INT64_MAX = 2**63 - 1
_MAX_TEXT = 4096
_MAX_WRITTEN_EXPONENT = 100_000
_MAX_SUM_DIGITS = 1_000
_CLIP = 64


class QuantityError(ValueError):
    """A text that is not a quantity; `kind` is `format`, `suffix`, `numeric` or `too-large`."""

    def __init__(self, kind: str, text: str) -> None:
        """Says what is wrong with `text`, of which a message repeats the first 64 characters."""
        said = {
            "format": "is not a quantity such as `500m`, `2` or `16Gi`",
            "suffix": "has an unknown suffix; known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and e3",
            "numeric": "has no digits",
            "too-large": "is too large or too long for a quantity",
        }
        clipped = text if len(text) <= _CLIP else text[:_CLIP] + "…"
        super().__init__(f"`{clipped}` {said[kind]}")
        self.kind = kind


class RangeError(ValueError):
    """A quantity that is not a 64-bit number of the asked unit, or a sum that is too long."""


class Format(Enum):
    """Which family of suffixes a quantity was written with; values are Kubernetes' names."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class _Form(Enum):
    """How Kubernetes holds the number; it decides how a negative fraction is rounded."""

    FAST = 1
    WIDE = 2
    CAPPED = 3


@dataclass(frozen=True, slots=True)
class Quantity:
    """The number `coefficient`·10^`exponent`, with the format that it was written in.

    `==` compares all of it: `1000m` and `1` are the same amount and different texts. Compare amounts with
    `compare`, or with `<` and its like.
    """

    coefficient: int
    exponent: int = 0
    format: Format = Format.DECIMAL_SI
    _held_exponent: int = 0
    _form: _Form = _Form.FAST
    _text: str | None = None

    @classmethod
    def of(cls, amount: int, exponent: int = 0, form: Format = Format.DECIMAL_SI) -> Quantity:
        """`amount`·10^`exponent`: `Quantity.of(1500, -3)` is `1500m`."""
        held = _Form.FAST if -_INT64_MAX - 1 <= amount <= _INT64_MAX else _Form.WIDE
        return cls(amount, exponent, form, exponent, held)

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Reads a quantity.

        Refused is what Kubernetes refuses, and also texts without a digit (Kubernetes reads them as 0), exponents
        outside of 32 bits (Kubernetes cuts them) and exponents that Kubernetes would spend minutes on.
        """
        scanned = _scan(text)
        return _fast(scanned, text) or _wide(scanned, text)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.coefficient > 0) - (self.coefficient < 0)

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return self._scaled(0)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return self._scaled(-3)

    def _scaled(self, unit: int) -> int:
        if self.coefficient == 0:
            return 0
        power = self.exponent - unit
        # 10^19 has no place in 64 bits, so no longer product is built.
        if self._form is _Form.CAPPED or power >= 19:
            raise RangeError(f"`{self}` does not fit in 64 bits")
        magnitude, exact = abs(self.coefficient), True
        if power >= 0:
            magnitude *= 10**power
        else:
            magnitude, exact = _divide_up(magnitude, -power)
        if self.coefficient < 0 and self._form is _Form.WIDE and self._held_exponent < unit:
            # With 20 zeros the held integer is beyond 64 bits whatever its digits are.
            held = abs(self.coefficient) * 10 ** min(self.exponent - self._held_exponent, 20)
            if not exact or held > _INT64_MAX:
                raise RangeError(f"`{self}` is negative and not a whole number of the unit")
        number = -magnitude if self.coefficient < 0 else magnitude
        if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
            raise RangeError(f"`{self}` does not fit in 64 bits")
        return number

    def canonical(self) -> str:
        """The text that Kubernetes 1.36 shows, its losses included: 10^30 written out reads `1`."""
        return self._text if self._text is not None else _render(self, lossy=True)

    def __str__(self) -> str:
        """A text that parses back to the same number."""
        return _render(self, lossy=False)

    def __add__(self, other: Quantity) -> Quantity:
        """The exact sum, in the format of the first summand that is not 0."""
        if self.coefficient == 0 or other.coefficient == 0:
            return replace(other if self.coefficient == 0 else self, _text=None)
        exponent = min(self.exponent, other.exponent)
        coefficient = _aligned(self, exponent) + _aligned(other, exponent)
        if _Form.CAPPED in (self._form, other._form):
            form = _Form.CAPPED
        elif self._form is other._form is _Form.FAST and abs(coefficient) <= _INT64_MAX:
            form = _Form.FAST
        else:
            form = _Form.WIDE
        held = min(self._held_exponent, other._held_exponent)
        return Quantity(coefficient, exponent, self.format, held, form)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1: whether the amount is smaller, the same, or larger. No power of ten is written out."""
        if self.sign != other.sign or self.sign == 0:
            return (self.sign > other.sign) - (self.sign < other.sign)
        left, right = str(abs(self.coefficient)), str(abs(other.coefficient))
        ends = (len(left) + self.exponent, len(right) + other.exponent)
        if ends[0] != ends[1]:
            larger = ends[0] > ends[1]
        else:
            # Of equal length before the point, digits compare as text.
            left, right = left.rstrip("0"), right.rstrip("0")
            if left == right:
                return 0
            larger = left > right
        return self.sign if larger else -self.sign

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __le__(self, other: Quantity) -> bool:
        return self.compare(other) <= 0

    def __gt__(self, other: Quantity) -> bool:
        return self.compare(other) > 0

    def __ge__(self, other: Quantity) -> bool:
        return self.compare(other) >= 0


@dataclass(frozen=True, slots=True)
class _Scanned:
    negative: bool
    whole: str
    fraction: str
    format: Format
    power: int
    # Neither a `+`, nor a point, nor leading zeros.
    plain: bool

    @property
    def digits(self) -> int:
        return int(self.whole + self.fraction or "0")


def _scan(text: str) -> _Scanned:
    if len(text) > _MAX_TEXT or len(text.encode("utf-8", "surrogatepass")) > _MAX_TEXT:
        raise QuantityError("too-large", text)
    found = _GRAMMAR.fullmatch(text)
    if found is None or not text:
        raise QuantityError("format", text)
    sign, zeros, whole, point, fraction, suffix, _ = found.groups(default="")
    form, power = _suffix(suffix, text)
    if not zeros and not whole and not fraction:
        raise QuantityError("numeric", text)
    plain = sign != "+" and not zeros and not point
    return _Scanned(sign == "-", whole, fraction, form, power, plain)


def _suffix(suffix: str, text: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return Format.DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY_SI, _BINARY[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or not -_INT64_MAX - 1 <= (power := int(found.group(1))) <= _INT64_MAX:
        raise QuantityError("suffix", text)
    if not -(2**31) <= power < 2**31:
        raise QuantityError("too-large", text)
    return Format.DECIMAL_EXPONENT, power


def _fast(scanned: _Scanned, text: str) -> Quantity | None:
    """The quantity, if Kubernetes holds it as a 64-bit integer and a power of ten."""
    whole_digits = max(len(scanned.whole), 1)
    magnitude = scanned.digits
    if scanned.format is Format.BINARY_SI:
        if scanned.fraction or whole_digits > _FAST_BINARY.get(scanned.power, 0):
            return None
        exponent, keeps_text = 0, magnitude % 8 != 0
        magnitude <<= scanned.power
    else:
        exponent = scanned.power - len(scanned.fraction)
        if whole_digits + len(scanned.fraction) > _FAST_DIGITS or not _NANO <= exponent < 2**31:
            return None
        tidy = not (scanned.whole + scanned.fraction).endswith("000")
        keeps_text = exponent % 3 == 0 and tidy and bool(scanned.whole)
    spelled = not scanned.plain or scanned.format is Format.DECIMAL_EXPONENT
    coefficient = -magnitude if scanned.negative else magnitude
    shown = text if keeps_text and spelled else None
    return Quantity(coefficient, exponent, scanned.format, exponent, _Form.FAST, shown)


def _wide(scanned: _Scanned, text: str) -> Quantity:
    """The quantity, if Kubernetes needs an integer of any length: rounded away from zero to a whole nano."""
    binary = scanned.format is Format.BINARY_SI
    magnitude, power = scanned.digits, scanned.power
    if binary:
        magnitude, power = magnitude << power, 0
    exponent = power - len(scanned.fraction)
    if magnitude == 0:
        return Quantity(0, exponent, scanned.format, exponent, _Form.WIDE)
    if abs(scanned.power) > _MAX_WRITTEN_EXPONENT:
        raise QuantityError("too-large", text)
    if exponent < _NANO:
        magnitude, exponent = _divide_up(magnitude, _NANO - exponent)[0], _NANO
    form, held, shown = _Form.WIDE, _NANO, scanned.format
    if binary:
        # Kubernetes cuts what is above 2^63-1, and shows less than one unit with decimal letters.
        if magnitude > _INT64_MAX * 10**-exponent:
            magnitude, exponent, held, form = _INT64_MAX, 0, 0, _Form.CAPPED
        elif magnitude < 10**-exponent:
            shown = Format.DECIMAL_SI
    return Quantity(-magnitude if scanned.negative else magnitude, exponent, shown, held, form)


def _divide_up(magnitude: int, power: int) -> tuple[int, bool]:
    """Divides by 10^`power`, rounding up, and says whether that was exact."""
    if power > _MAX_TEXT + 32:
        return int(magnitude != 0), magnitude == 0
    quotient, rest = divmod(magnitude, 10**power)
    return quotient + (rest > 0), rest == 0


def _aligned(quantity: Quantity, exponent: int) -> int:
    zeros = quantity.exponent - exponent
    if zeros > 0 and zeros + len(str(abs(quantity.coefficient))) > _MAX_SUM_DIGITS:
        raise RangeError("the sum of the quantities is too large")
    return int(quantity.coefficient * 10**zeros)


def _render(quantity: Quantity, *, lossy: bool) -> str:
    if quantity.coefficient == 0:
        return "0"
    sign = "-" if quantity.coefficient < 0 else ""
    number, exponent = abs(quantity.coefficient), quantity.exponent
    if quantity.format is Format.BINARY_SI and exponent <= 0:
        whole, exact = _divide_up(number, -exponent)
        if exact and whole >= 1024:
            return sign + _binary_text(whole)
    digits = str(number)
    stripped = digits.rstrip("0")
    exponent += len(digits) - len(stripped)
    odd = exponent % 3
    stripped, exponent = stripped + "0" * odd, exponent - odd
    letter = None if quantity.format is Format.DECIMAL_EXPONENT else _LETTERS.get(exponent)
    if letter is None and exponent != 0 and not (lossy and quantity.format is not Format.DECIMAL_EXPONENT):
        letter = f"e{exponent}"
    return sign + stripped + (letter or "")


def _binary_text(whole: int) -> str:
    suffix = ""
    for following in _BINARY:
        if whole % 1024:
            break
        whole, suffix = whole // 1024, following
    return f"{whole}{suffix}"
