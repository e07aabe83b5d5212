"""Amounts and task fields as Volcano derives them: rounded per container, then summed (Volcano ed72c7c81)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pumice.derive._total import Init, add, raise_to, total
from pumice.derive.kubernetes import (
    Statuses,
    each_container_requests,
    each_init_requests,
    status_of,
    supported,
)
from pumice.derive.pod import Container, ContainerStatus, Pod, Quantities
from pumice.resource import amount, kind_of

__all__ = ["VolcanoAmount", "VolcanoTask", "pod_status", "volcano"]

_PREEMPTABLE = "volcano.sh/preemptable"
_REVOCABLE_ZONE = "volcano.sh/revocable-zone"
_TASK_PRIORITY = "volcano.sh/task-priority"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
# Truth values as Go spells them.
_TRUTH = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


@dataclass(frozen=True, slots=True)
class VolcanoAmount:
    """An amount in Pumice's unit: the exact sum, and the sum in doubles, rounded at every step as Volcano has it."""

    exact: int
    rounded: float

    def __add__(self, other: VolcanoAmount) -> VolcanoAmount:
        return VolcanoAmount(self.exact + other.exact, self.rounded + other.rounded)

    def at_least(self, other: VolcanoAmount) -> VolcanoAmount:
        """The larger of both, each kind of sum for itself."""
        return VolcanoAmount(max(self.exact, other.exact), max(self.rounded, other.rounded))


Amounts = dict[str, VolcanoAmount]


@dataclass(frozen=True, slots=True)
class VolcanoTask:
    """What Volcano derives from a pod; amounts are without the pod itself."""

    requests: Amounts
    without_init: Amounts
    limit: Amounts
    best_effort: bool
    has_sidecar: bool
    scheduling_gated: bool
    status: str
    node: str
    priority: int
    preemptable: bool
    revocable_zone: str

    def resreq(self) -> Amounts:
        """The request as Volcano has it: with the pod itself (`pods`)."""
        return with_the_pod_itself(self.requests)


def volcano(pod: Pod) -> VolcanoTask:
    """What Volcano derives from the pod."""
    containers = [amounts_of(item) for item in each_container_requests(pod, Statuses.OWN_LIST)]
    inits = [Init(init.sidecar, amounts_of(init.amounts)) for init in each_init_requests(pod, Statuses.OWN_LIST)]
    requests = _amended(total(containers, inits), pod)
    return VolcanoTask(
        requests=requests,
        without_init=_amended(total(containers, []), pod),
        limit=_limit(pod),
        best_effort=is_best_effort(requests),
        has_sidecar=any(container.always_restarted for container in pod.init_containers),
        scheduling_gated=pod.gated,
        status=pod_status(pod),
        node=pod.node,
        priority=_priority(pod),
        preemptable=_preemptable(pod),
        revocable_zone=_revocable_zone(pod),
    )


def pod_status(pod: Pod) -> str:
    """Status of a pod, in Volcano's words: `Pending`, `Bound`, `Running`, `Releasing` and so on."""
    phase = pod.status.phase
    if phase in ("Running", "Pending"):
        if pod.deleting:
            return "Releasing"
        return "Running" if phase == "Running" else "Bound" if pod.node else "Pending"
    return phase if phase in ("Succeeded", "Failed") else "Unknown"


def amounts_of(quantities: Quantities) -> Amounts:
    """Volcano's amounts of a resource list."""
    amounts = {}
    for name, quantity in quantities.items():
        if kind_of(name).counted_by_volcano:
            number = amount(name, quantity)
            amounts[name] = VolcanoAmount(number, float(number))
    return amounts


def is_best_effort(amounts: Amounts) -> bool:
    """Nothing but `pods` is asked for."""
    return all(name == "pods" or amount.exact == 0 for name, amount in amounts.items())


def with_the_pod_itself(amounts: Amounts) -> Amounts:
    """The same with one pod more."""
    pods = amounts.get("pods", VolcanoAmount(0, 0.0))
    return amounts | {"pods": pods + VolcanoAmount(1, 1.0)}


def _amended(amounts: Amounts, pod: Pod) -> Amounts:
    """Puts the values at pod level in place, then adds the overhead."""
    amounts = amounts | amounts_of(supported(pod.resources.requests if pod.resources else None))
    add(amounts, amounts_of(pod.overhead or {}))
    return amounts


def _limit(pod: Pod) -> Amounts:
    containers = [_container_limit(pod, Statuses.OWN_LIST, c, pod.status.containers) for c in pod.containers]
    inits = []
    for item in pod.init_containers:
        statuses = Statuses.OWN_LIST if item.always_restarted else Statuses.IGNORED
        limit = _container_limit(pod, statuses, item, pod.status.init_containers)
        inits.append(Init(item.always_restarted, limit))
    amounts = total(containers, inits)
    amounts |= amounts_of(supported(pod.resources.limits if pod.resources else None))
    overhead = amounts_of(pod.overhead or {})
    add(amounts, {name: more for name, more in overhead.items() if name in amounts and amounts[name].exact != 0})
    return amounts


def _container_limit(pod: Pod, statuses: Statuses, container: Container, own: list[ContainerStatus]) -> Amounts:
    """A container's limits: the larger of specification and status, whether the resize is feasible or not."""
    limits = dict(container.resources.limits or {})
    found = status_of(pod, statuses, container, own)
    if found is not None:
        raise_to(limits, found[0].limits or {})
    return amounts_of(limits)


def _priority(pod: Pod) -> int:
    """The annotation if it is a number, else the specification's, else 1."""
    text = pod.annotations.get(_TASK_PRIORITY, "")
    if _INTEGER.fullmatch(text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    return 1 if pod.priority is None else pod.priority


def _preemptable(pod: Pod) -> bool:
    """Annotation before label before yes; what is no truth value is no."""
    value = pod.annotations.get(_PREEMPTABLE, pod.labels.get(_PREEMPTABLE))
    return True if value is None else _TRUTH.get(value, False)


def _revocable_zone(pod: Pod) -> str:
    zone = pod.annotations.get(_REVOCABLE_ZONE)
    if zone is not None:
        return "*" if zone == "*" else ""
    return "*" if _TRUTH.get(pod.annotations.get(_PREEMPTABLE, ""), False) else ""
