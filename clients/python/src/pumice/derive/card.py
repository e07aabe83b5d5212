"""Amounts as the capacity-card plugin derives them (Volcano 61a5f00e0, on Kubernetes 1.34.1)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.derive._total import Init, add, total
from pumice.derive.kubernetes import (
    Statuses,
    add_overhead_to_limits,
    container_limits,
    container_requests,
    each_container_requests,
    each_init_requests,
)
from pumice.derive.pod import Pod, Quantities
from pumice.derive.volcano import Amounts, amounts_of, is_best_effort, with_the_pod_itself
from pumice.resource import Unit, amount_in, format_in, too_large

__all__ = ["CardAmounts", "MissingCardError", "card"]


class MissingCardError(LookupError):
    """A pod names a card's resource in neither limits nor requests."""


@dataclass(frozen=True, slots=True)
class CardAmounts:
    """What capacity-card derives from a pod: exact requests and limits, the task's request, whether it is empty."""

    requests: Quantities
    limits: Quantities
    resreq: Amounts
    best_effort: bool

    def cards_milli(self, resource: str) -> int:
        """Thousandths of cards: the effective limit, else the effective request, rounded up to whole cards."""
        quantity = self.limits.get(resource, self.requests.get(resource))
        if quantity is None:
            raise MissingCardError(f"no resource `{resource}` in the pod's requests or limits")
        milli = amount_in(Unit.WHOLE, resource, quantity) * 1000
        if milli >= 2**63:
            raise too_large(Unit.MILLI, resource, format_in(Unit.MILLI, resource, milli))
        return milli


def card(pod: Pod) -> CardAmounts:
    """What capacity-card derives from the pod."""
    requests = container_requests(pod, Statuses.BOTH, {})
    add(requests, pod.overhead or {})
    limits = container_limits(pod, Statuses.IGNORED)
    add_overhead_to_limits(limits, pod)
    resreq = _resreq(pod)
    return CardAmounts(requests, limits, resreq, is_best_effort(resreq))


def _resreq(pod: Pod) -> Amounts:
    containers = each_container_requests(pod, Statuses.IGNORED)
    if pod.overhead is not None:
        # The overhead is one more container: it counts beside them, and before the maximum.
        containers.append(pod.overhead)
    inits = [Init(init.sidecar, amounts_of(init.amounts)) for init in each_init_requests(pod, Statuses.IGNORED)]
    return with_the_pod_itself(total([amounts_of(item) for item in containers], inits))
