"""From the amounts of containers to those of their pod: sums, and the maximum over the starting phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pumice.derive.pod import PodError
from pumice.quantity import RangeError


class _Amount(Protocol):
    def __add__(self: A, other: A, /) -> A: ...
    def at_least(self: A, other: A, /) -> A: ...


A = TypeVar("A", bound=_Amount)


@dataclass(frozen=True, slots=True)
class Init(Generic[A]):
    """The amounts of one init container; a sidecar keeps running beside those that follow."""

    sidecar: bool
    amounts: dict[str, A]


def add(into: dict[str, A], more: dict[str, A]) -> None:
    """Adds `more`, name by name."""
    for name, amount in more.items():
        try:
            into[name] = into[name] + amount if name in into else amount
        except RangeError as error:
            raise PodError(f"`{name}`: {error}") from None


def raise_to(into: dict[str, A], other: dict[str, A]) -> None:
    """Raises every amount that `other` has more of."""
    for name, amount in other.items():
        into[name] = into[name].at_least(amount) if name in into else amount


def total(containers: Iterable[dict[str, A]], inits: Sequence[Init[A]]) -> dict[str, A]:
    """The sum of containers and sidecars, or the largest need while the pod starts (Kubernetes enhancement 753)."""
    running: dict[str, A] = {}
    for container in containers:
        add(running, container)
    sidecars: dict[str, A] = {}
    starting: dict[str, A] = {}
    for init in inits:
        if init.sidecar:
            add(running, init.amounts)
            add(sidecars, init.amounts)
            raise_to(starting, sidecars)
        else:
            needed = dict(init.amounts)
            add(needed, sidecars)
            raise_to(starting, needed)
    raise_to(running, starting)
    return running
