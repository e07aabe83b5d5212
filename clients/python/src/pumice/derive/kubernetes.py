"""Amounts as kube-scheduler counts them: exact sums, rounded once per pod (Kubernetes 1.36.1 and 1.35.6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pumice.derive._total import Init, add, raise_to, total
from pumice.derive.pod import Container, ContainerStatus, Pod, Quantities, Resources
from pumice.quantity import Format, Quantity
from pumice.resource import Kind, amount_in, kind_of

__all__ = ["DEFAULT_CPU_MILLI", "DEFAULT_MEMORY", "KubernetesAmounts", "Release", "kubernetes"]

DEFAULT_CPU_MILLI = 100
"""What kube-scheduler assumes of a container without a cpu request, in thousandths of a core."""
DEFAULT_MEMORY = 200 << 20
"""What kube-scheduler assumes of a container without a memory request, in bytes."""


class Release(Enum):
    """The Kubernetes release to follow: 1.35 leaves the resize of a pod as a whole out."""

    V1_35 = "1.35"
    V1_36 = "1.36"


@dataclass(frozen=True, slots=True)
class KubernetesAmounts:
    """A pod's amounts in Kubernetes.

    `requests` and `limits` are exact, under all names. `counted` is what a node's usage grows by: cpu in thousandths,
    the rest in whole units, only names that Kubernetes counts, without `pods`. `nonzero_cpu_milli` and
    `nonzero_memory` have the defaults for containers that do not request them; the pair `container_nonzero_…` is of the
    containers and the overhead alone, without the amounts that the pod has as a whole.
    """

    requests: Quantities
    limits: Quantities
    counted: dict[str, int]
    nonzero_cpu_milli: int
    nonzero_memory: int
    container_nonzero_cpu_milli: int
    container_nonzero_memory: int


def kubernetes(pod: Pod, release: Release = Release.V1_36) -> KubernetesAmounts:
    """The pod's amounts in Kubernetes."""
    requests = _requests(pod, release, {})
    counted = {}
    for name, quantity in requests.items():
        kind = kind_of(name)
        if kind.counted_by_kubernetes and kind is not Kind.PODS:
            counted[name] = amount_in(kind.kubernetes_unit, name, quantity)
    cpu, memory = _nonzero(pod, release, requests)
    container_cpu, container_memory = _container_nonzero(pod) if pod_level_requests(pod) else (cpu, memory)
    limits = _limits(pod, release)
    return KubernetesAmounts(requests, limits, counted, cpu, memory, container_cpu, container_memory)


class Statuses(Enum):
    """Which status entries stand for a container's own resources."""

    # The specification alone counts.
    IGNORED = 1
    # Those of its own list: Volcano.
    OWN_LIST = 2
    # Those of its name in either list, init containers first: Kubernetes.
    BOTH = 3


def status_of(
    pod: Pod, statuses: Statuses, container: Container, own: list[ContainerStatus]
) -> tuple[Resources, ContainerStatus] | None:
    """The status entry of a container that has `resources` set."""
    lists: list[list[ContainerStatus]] = []
    if statuses is Statuses.OWN_LIST:
        lists = [own]
    elif statuses is Statuses.BOTH:
        lists = [pod.status.init_containers, pod.status.containers]
    for entries in lists:
        for entry in reversed(entries):
            if entry.name == container.name:
                return (entry.resources, entry) if entry.resources is not None else None
    return None


def each_container_requests(pod: Pod, statuses: Statuses) -> list[Quantities]:
    """The requests of each container."""
    return [_container_request(pod, statuses, item, pod.status.containers) for item in pod.containers]


def each_init_requests(pod: Pod, statuses: Statuses) -> list[Init[Quantity]]:
    """The requests of each init container; only sidecars have a status that counts."""
    inits = []
    for item in pod.init_containers:
        own = statuses if item.always_restarted else Statuses.IGNORED
        amounts = _container_request(pod, own, item, pod.status.init_containers)
        inits.append(Init(item.always_restarted, amounts))
    return inits


def container_requests(pod: Pod, statuses: Statuses, missing: Quantities) -> Quantities:
    """Requests over all containers; `missing` has the amounts of resources that a container does not name."""
    containers = [missing | amounts for amounts in each_container_requests(pod, statuses)]
    inits = [Init(init.sidecar, missing | init.amounts) for init in each_init_requests(pod, statuses)]
    return total(containers, inits)


def container_limits(pod: Pod, statuses: Statuses) -> Quantities:
    """Limits over all containers."""

    def limit(which: Statuses, container: Container, own: list[ContainerStatus]) -> Quantities:
        found = status_of(pod, which, container, own)
        if found is None:
            return dict(container.resources.limits or {})
        return _effective_limits(pod, container.resources.limits, found[0].limits) or {}

    containers = [limit(statuses, item, pod.status.containers) for item in pod.containers]
    inits = []
    for item in pod.init_containers:
        which = statuses if item.always_restarted else Statuses.IGNORED
        inits.append(Init(item.always_restarted, limit(which, item, pod.status.init_containers)))
    return total(containers, inits)


def add_overhead_to_limits(limits: Quantities, pod: Pod) -> None:
    """Overhead counts towards limits that are present and not 0."""
    overhead = pod.overhead or {}
    add(limits, {name: more for name, more in overhead.items() if name in limits and limits[name].sign != 0})


def supported(quantities: Quantities | None) -> Quantities:
    """The entries whose names count at pod level: cpu, memory and huge pages."""
    return {
        name: quantity
        for name, quantity in (quantities or {}).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def pod_level_requests(pod: Pod) -> Quantities:
    """The requests at pod level that count there."""
    return supported(pod.resources.requests if pod.resources else None)


def _container_request(pod: Pod, statuses: Statuses, container: Container, own: list[ContainerStatus]) -> Quantities:
    found = status_of(pod, statuses, container, own)
    if found is None:
        return dict(container.resources.requests or {})
    actual, entry = found
    return _effective_requests(pod, container.resources.requests, actual.requests, entry.allocated)


def _effective_requests(
    pod: Pod, spec: Quantities | None, actual: Quantities | None, allocated: Quantities | None
) -> Quantities:
    """A request raised by what runs while it is resized; that alone if the resize is infeasible."""
    effective: Quantities = {}
    for quantities in (None if pod.status.resize_infeasible else spec, actual, allocated):
        raise_to(effective, quantities or {})
    return effective


def _effective_limits(pod: Pod, spec: Quantities | None, actual: Quantities | None) -> Quantities | None:
    """Limits while a resize is under way; an infeasible one leaves what runs, or nothing."""
    if pod.status.resize_infeasible:
        return None if actual is None else dict(actual)
    effective = dict(spec or {})
    raise_to(effective, actual or {})
    return effective


def _requests(pod: Pod, release: Release, missing: Quantities) -> Quantities:
    requests = container_requests(pod, Statuses.BOTH, missing)
    spec = pod.resources.requests if pod.resources else None
    status = _resized_as_a_whole(pod, release)
    effective = None
    if status is not None:
        effective = _effective_requests(pod, spec, status.requests, pod.status.allocated)
    for name, quantity in pod_level_requests(pod).items():
        requests[name] = _current(effective, name, quantity)
    add(requests, pod.overhead or {})
    return requests


def _limits(pod: Pod, release: Release) -> Quantities:
    limits = container_limits(pod, Statuses.BOTH)
    spec = pod.resources.limits if pod.resources else None
    status = _resized_as_a_whole(pod, release)
    effective = None if status is None else _effective_limits(pod, spec, status.limits)
    for name, quantity in supported(spec).items():
        limits[name] = _current(effective, name, quantity)
    add_overhead_to_limits(limits, pod)
    return limits


def _nonzero(pod: Pod, release: Release, requests: Quantities) -> tuple[int, int]:
    missing = _nonzero_defaults()
    if pod_level_requests(pod):
        missing = {name: amount for name, amount in missing.items() if name not in requests}
    return _cpu_and_memory(_requests(pod, release, missing))


def _container_nonzero(pod: Pod) -> tuple[int, int]:
    """Non-zero requests of the containers and the overhead alone."""
    amounts = container_requests(pod, Statuses.BOTH, _nonzero_defaults())
    add(amounts, pod.overhead or {})
    return _cpu_and_memory(amounts)


def _nonzero_defaults() -> Quantities:
    """Amounts of a container that requests no cpu or memory."""
    return {
        "cpu": Quantity.of(DEFAULT_CPU_MILLI, -3),
        "memory": Quantity.of(DEFAULT_MEMORY, 0, Format.BINARY_SI),
    }


def _cpu_and_memory(amounts: Quantities) -> tuple[int, int]:
    nothing = Quantity.of(0)
    cpu, memory = amounts.get("cpu", nothing), amounts.get("memory", nothing)
    return (
        amount_in(Kind.CPU.kubernetes_unit, "cpu", cpu),
        amount_in(Kind.MEMORY.kubernetes_unit, "memory", memory),
    )


def _resized_as_a_whole(pod: Pod, release: Release) -> Resources | None:
    return pod.status.resources if release is Release.V1_36 else None


def _current(effective: Quantities | None, name: str, specified: Quantity) -> Quantity:
    """At pod level the specified amount, or while a resize is under way the effective one: 0 if the status lacks it."""
    if effective is None:
        return specified
    return effective.get(name, Quantity.of(0, 0, Format.DECIMAL_EXPONENT))
