"""Functions that make parts of requests and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.duration_pb2 import Duration

from pumice import v1
from pumice._flow import seconds
from pumice.quantity import Quantity

__all__ = ["amounts", "duration", "inline", "latest", "node", "resources", "task"]

Amount = str | int | Quantity


def resources(
    amounts: Mapping[str, Amount] | None = None, *, cpu: Amount | None = None, memory: Amount | None = None
) -> v1.ResourceList:
    """Makes amounts by resource name: `resources({"nvidia.com/gpu": 1}, cpu="500m", memory="4Gi")`."""
    named = {"cpu": cpu, "memory": memory}
    all_of_them = {**(amounts or {}), **{name: amount for name, amount in named.items() if amount is not None}}
    return v1.ResourceList(items={name: str(amount) for name, amount in all_of_them.items()})


def task(  # noqa: PLR0913 - each is a field of its own
    name: str = "",
    *,
    cpu: Amount | None = None,
    memory: Amount | None = None,
    requests: Mapping[str, Amount] | None = None,
    job: str = "",
    node: str = "",
    status: v1.TaskStatus.ValueType = v1.TASK_STATUS_UNSPECIFIED,
) -> v1.Task:
    """Makes a task. With a name and without amounts it refers to the stored task of that name."""
    asked = cpu is not None or memory is not None or requests is not None
    effective = resources(requests, cpu=cpu, memory=memory) if asked else None
    return v1.Task(name=name, job=job, node=node, status=status, requests=effective)


def node(
    name: str,
    allocatable: Mapping[str, Amount] | None = None,
    *,
    cpu: Amount | None = None,
    memory: Amount | None = None,
    pods: Amount = 110,
) -> v1.Node:
    """Makes a node with its allocatable resources."""
    amounts = resources({"pods": pods, **(allocatable or {})}, cpu=cpu, memory=memory)
    return v1.Node(name=name, allocatable=amounts)


def duration(value: float | str) -> Duration:
    """Makes a duration of seconds, or of a text with a unit such as "30s"."""
    span = Duration()
    span.FromNanoseconds(round(seconds("duration", value) * 1e9))
    return span


def latest(
    policy: str = "",
    *,
    profile: str = "",
    at_least: v1.Revision | None = None,
    positions: Iterable[v1.SourcePosition] = (),
    max_wait: float | str | None = None,
) -> v1.EvaluationRef:
    """Refers to the latest snapshot under a policy, which waits up to `max_wait` for `at_least` and `positions`."""
    wait = None if max_wait is None else duration(max_wait)
    return v1.EvaluationRef(
        latest=v1.LatestRef(policy=policy, profile=profile, at_least=at_least, positions=positions, max_wait=wait)
    )


def inline(
    cluster: v1.Cluster, policy_document: str = "", *, profile: str = "", compatibility: str = ""
) -> v1.EvaluationRef:
    """Refers to a cluster and a policy that are sent with the request; the server keeps nothing of them."""
    return v1.EvaluationRef(
        inline=v1.InlineSnapshot(
            cluster=cluster, policy_document=policy_document, profile=profile, compatibility=compatibility
        )
    )


def amounts(listed: Iterable[v1.Amount]) -> dict[str, float]:
    """Returns amounts by name: in milli-cores, bytes, pods, or thousandths of any other resource."""
    return {amount.resource: amount.value for amount in listed}
