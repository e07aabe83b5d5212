"""What `NodeResourcesFitPlus` adds to a node for a pod (Koordinator a7a1b76b, on Kubernetes 1.35.6)."""

from __future__ import annotations

from pumice.derive._total import add
from pumice.derive.kubernetes import (
    DEFAULT_CPU_MILLI,
    DEFAULT_MEMORY,
    Statuses,
    container_requests,
    pod_level_requests,
)
from pumice.derive.pod import Container, Pod
from pumice.resource import Kind, Unit, amount_in, format_in, kind_of, too_large

__all__ = ["fit_plus"]


def fit_plus(pod: Pod) -> dict[str, int]:
    """The amounts of the names that the pod requests: cpu in thousandths, the rest in whole units.

    Names come from the effective request, amounts from containers, init containers in order (not as Kubernetes sums
    them) and overhead, which counts in whole units for cpu, too. Upstream ends its process on a pod with overhead.
    """
    requests = container_requests(pod, Statuses.IGNORED, {}) | pod_level_requests(pod)
    add(requests, pod.overhead or {})
    amounts = {}
    for name, quantity in sorted(requests.items()):
        kind = kind_of(name)
        if not kind.counted_by_kubernetes or kind is Kind.PODS:
            continue
        if amount_in(kind.kubernetes_unit, name, quantity) > 0:
            amounts[name] = _added(pod, name, kind)
    return amounts


def _added(pod: Pod, name: str, kind: Kind) -> int:
    """What the node's amount of one resource grows by."""
    number = sum(_container_amount(container, name, kind) for container in pod.containers)
    for container in pod.init_containers:
        own = _container_amount(container, name, kind)
        number = number + own if container.always_restarted else max(number, own)
    if pod.overhead and name in pod.overhead:
        number += amount_in(Unit.WHOLE, name, pod.overhead[name])
    if number >= 2**63:
        raise too_large(kind.kubernetes_unit, name, format_in(kind.kubernetes_unit, name, number))
    return number


def _container_amount(container: Container, name: str, kind: Kind) -> int:
    """A container's request, or the default for a cpu or memory request that it lacks."""
    requests = container.resources.requests or {}
    if name in requests:
        return amount_in(kind.kubernetes_unit, name, requests[name])
    return {Kind.CPU: DEFAULT_CPU_MILLI, Kind.MEMORY: DEFAULT_MEMORY}.get(kind, 0)
