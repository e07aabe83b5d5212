"""Pods to effective amounts, as each scheduler counts them: five derivations exist, and they differ."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.derive.card import CardAmounts, MissingCardError, card
from pumice.derive.fit_plus import fit_plus
from pumice.derive.kubernetes import KubernetesAmounts, Release, kubernetes
from pumice.derive.pod import Pod, PodError, RawNumber, read_json
from pumice.derive.volcano import Amounts, VolcanoTask, pod_status, volcano
from pumice.resource import Kind, amount_in, format_in, kind_of, too_large

__all__ = [
    "CardAmounts",
    "EffectiveTask",
    "KubernetesAmounts",
    "MissingCardError",
    "Pod",
    "PodError",
    "RawNumber",
    "Release",
    "VolcanoTask",
    "card",
    "derivation_of",
    "effective",
    "fit_plus",
    "kubernetes",
    "read_json",
    "volcano",
]


# Annotation, and else label, with a task's role in its job.
_TASK_ROLE = "volcano.sh/task-spec"


@dataclass(frozen=True, slots=True)
class EffectiveTask:
    """A pod as a task on the wire; amounts are quantity texts, exact in the unit that the scheduler counts in.

    `container_nonzero_requests` is None where it equals `nonzero_requests`, and `kubernetes_requests` where it equals
    `requests`.
    """

    requests: dict[str, str]
    limits: dict[str, str]
    nonzero_requests: dict[str, str]
    counted_requests: dict[str, str]
    container_nonzero_requests: dict[str, str] | None
    kubernetes_requests: dict[str, str] | None
    status: str
    node: str
    nominated_node: str
    priority: int
    gated: bool
    scheduling_gates: list[str]
    priority_class: str
    role: str


def derivation_of(pod: Pod) -> str:
    """`kubernetes` for the default scheduler and Koordinator's, `volcano` for any other that the pod names."""
    name = pod.scheduler_name
    return "kubernetes" if name in ("", "default-scheduler") or name.startswith("koord") else "volcano"


def effective(pod: Pod, derivation: str = "auto") -> EffectiveTask:
    """The pod as a task, counted as `derivation` says: `kubernetes`, `volcano` or `auto` (by its scheduler)."""
    if derivation == "auto":
        derivation = derivation_of(pod)
    amounts = kubernetes(pod)
    kubernetes_requests = _counted_texts(amounts.counted)
    if derivation == "kubernetes":
        requests = kubernetes_requests
        limits = _kubernetes_limits(amounts)
        priority = pod.priority or 0
    elif derivation == "volcano":
        task = volcano(pod)
        requests, limits, priority = _volcano_texts(task.requests), _volcano_texts(task.limit), task.priority
    else:
        raise ValueError(f"unknown derivation `{derivation}`; known: auto, kubernetes, volcano")
    nonzero = {"cpu": amounts.nonzero_cpu_milli, "memory": amounts.nonzero_memory}
    of_containers = {"cpu": amounts.container_nonzero_cpu_milli, "memory": amounts.container_nonzero_memory}
    return EffectiveTask(
        requests=requests,
        limits=limits,
        nonzero_requests=_counted_texts(nonzero),
        counted_requests=_counted_texts(fit_plus(pod)),
        container_nonzero_requests=_counted_texts(of_containers) if of_containers != nonzero else None,
        kubernetes_requests=None if _same_amounts(kubernetes_requests, requests) else kubernetes_requests,
        status=pod_status(pod),
        node=pod.node,
        nominated_node=pod.status.nominated_node,
        priority=priority,
        gated=pod.gated,
        scheduling_gates=pod.scheduling_gates,
        priority_class=pod.priority_class,
        role=pod.annotations.get(_TASK_ROLE) or pod.labels.get(_TASK_ROLE) or "",
    )


def _counted(name: str, number: int) -> str:
    return format_in(kind_of(name).kubernetes_unit, name, number)


def _counted_texts(amounts: dict[str, int]) -> dict[str, str]:
    return {name: _counted(name, number) for name, number in amounts.items()}


def _same_amounts(one: dict[str, str], other: dict[str, str]) -> bool:
    """True if both request the same amounts; texts of one kind are equal if their amounts are."""

    def requested(texts: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in texts.items() if text != "0" and name != "pods"}

    return requested(one) == requested(other)


def _kubernetes_limits(amounts: KubernetesAmounts) -> dict[str, str]:
    limits = {}
    for name, quantity in amounts.limits.items():
        kind = kind_of(name)
        if kind.counted_by_kubernetes and kind is not Kind.PODS:
            limits[name] = _counted(name, amount_in(kind.kubernetes_unit, name, quantity))
    return limits


def _volcano_texts(amounts: Amounts) -> dict[str, str]:
    texts = {}
    for name, number in amounts.items():
        unit = kind_of(name).unit
        text = format_in(unit, name, number.exact)
        if number.exact >= 2**63:
            raise too_large(unit, name, text)
        texts[name] = text
    return texts
