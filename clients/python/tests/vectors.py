"""Recorded answers of Kubernetes, and a second, naive reading of quantities to judge them with."""

from __future__ import annotations

import gzip
import json
import re
from decimal import ROUND_UP, Context, Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
Case = dict[str, Any]


def cases(family: str) -> list[Case]:
    """The cases of a family; their numbers are texts as recorded."""
    path = ROOT / "tests" / "vectors" / f"{family}.json.gz"
    recorded = json.loads(gzip.decompress(path.read_bytes()), parse_int=str, parse_float=str)
    found: list[Case] = recorded["cases"]
    assert len(found) > 100
    return found


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXACT = Context(prec=5000, Emin=-999_999, Emax=999_999)


def _split(text: str) -> tuple[str, int, int] | None:
    """Digits with sign, power of ten, power of two; None for what a service refuses though upstream reads it."""
    found = re.fullmatch(r"([+-]*[0-9.]*)(.*)", text, re.DOTALL)
    assert found is not None
    number, suffix = found.groups()
    if not any(char.isdigit() for char in number):
        return None
    if suffix.endswith("i"):
        return number, 0, 10 * "KMGTPE".index(suffix[0]) + 10
    if suffix in _DECIMAL:
        return number, _DECIMAL[suffix], 0
    power = int(suffix[1:])
    return (number, power, 0) if -(2**31) <= power < 2**31 else None


def is_refused(text: str) -> bool:
    """Upstream reads these texts as some number; a service refuses them."""
    try:
        return _split(text) is None
    except (ValueError, IndexError):
        return True


def exact(text: str, places: int) -> int | None:
    """The number of 10^-places in the text, rounded away from zero; None if it has more than 30 digits."""
    split = _split(text)
    assert split is not None
    number, tens, twos = split
    amount = _EXACT.multiply(Decimal(number), Decimal(2**twos))
    if amount == 0:
        return 0
    if amount.adjusted() + tens + places > 30:
        return None
    if amount.adjusted() + tens + places < -30:
        return -1 if amount < 0 else 1
    scaled = amount.scaleb(tens + places, _EXACT)
    return int(scaled.to_integral_value(ROUND_UP, _EXACT))
