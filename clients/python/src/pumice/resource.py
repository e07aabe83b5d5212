"""Resource names: which ones schedulers count, and in what unit; amounts as integers and as text."""

from __future__ import annotations

import re
from enum import Enum

from pumice.quantity import Format, Quantity, RangeError

__all__ = ["AmountError", "Kind", "Unit", "amount", "amount_in", "format_amount", "format_in", "kind_of"]

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_EXTENDED = re.compile(rf"({_LABEL}(?:\.{_LABEL})*)/([A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?)")
_QUOTA_PREFIX = "requests."
# A DNS subdomain has at most 253 characters, of which the prefix takes its own.
_DOMAIN_MAX = 253 - len(_QUOTA_PREFIX)


class AmountError(ValueError):
    """A quantity that is no amount of its resource: negative, or too large for 64 bits."""


class Kind(Enum):
    """What schedulers make of a resource name."""

    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    EPHEMERAL_STORAGE = "ephemeral-storage"
    SCALAR = "scalar"
    # Kubernetes counts it, Volcano takes it for an object quota and drops it.
    COUNT_QUOTA = "count-quota"
    UNCOUNTED = "uncounted"

    @property
    def unit(self) -> Unit:
        """The unit of Pumice and Volcano: a byte of memory, a pod, a thousandth of everything else."""
        return Unit.WHOLE if self in (Kind.MEMORY, Kind.PODS) else Unit.MILLI

    @property
    def kubernetes_unit(self) -> Unit:
        """The unit of kube-scheduler and Koordinator: a thousandth of a core, a whole one of the rest."""
        return Unit.MILLI if self is Kind.CPU else Unit.WHOLE

    @property
    def counted_by_volcano(self) -> bool:
        """Volcano counts resources of this kind."""
        return self not in (Kind.COUNT_QUOTA, Kind.UNCOUNTED)

    @property
    def counted_by_kubernetes(self) -> bool:
        """Kubernetes and Koordinator count resources of this kind."""
        return self is not Kind.UNCOUNTED


class Unit(Enum):
    """What an integer amount counts; the value is its power of ten."""

    MILLI = -3
    WHOLE = 0


def kind_of(name: str) -> Kind:
    """The kind of a resource name, by the rules of Kubernetes 1.36 and Volcano ed72c7c81."""
    if name in ("cpu", "memory", "pods", "ephemeral-storage"):
        return Kind(name)
    scalar = name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name or _is_extended(name)
    if not scalar:
        return Kind.UNCOUNTED
    return Kind.COUNT_QUOTA if name.startswith("count/") else Kind.SCALAR


def _is_extended(name: str) -> bool:
    if name.startswith(_QUOTA_PREFIX):
        return False
    found = _EXTENDED.fullmatch(name)
    return found is not None and len(found.group(1)) <= _DOMAIN_MAX


def amount(name: str, quantity: Quantity) -> int:
    """The amount of the resource in Pumice's unit, rounded up."""
    return amount_in(kind_of(name).unit, name, quantity)


def amount_in(unit: Unit, name: str, quantity: Quantity) -> int:
    """The amount of the resource in the given unit, rounded up."""
    if quantity.sign < 0:
        raise AmountError(f"`{quantity}` of `{name}` is negative")
    try:
        return quantity.milli() if unit is Unit.MILLI else quantity.value()
    except RangeError:
        raise too_large(unit, name, str(quantity)) from None


def too_large(unit: Unit, name: str, shown: str) -> AmountError:
    """The error for an amount that does not fit in 64 bits."""
    limit = format_in(unit, name, 2**63 - 1)
    return AmountError(f"`{shown}` of `{name}` is too large: the limit is {limit}")


def format_amount(name: str, number: int) -> str:
    """An amount in Pumice's unit as quantity text: memory with binary suffixes, the rest with decimal ones."""
    return format_in(kind_of(name).unit, name, number)


def format_in(unit: Unit, name: str, number: int) -> str:
    """An amount in the given unit as quantity text."""
    form = Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI
    return str(Quantity.of(number, unit.value, form))
