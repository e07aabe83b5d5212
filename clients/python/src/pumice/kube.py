"""Kubernetes and Volcano objects as records: nodes, pods, namespaces, queues, pod groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from pumice import v1
from pumice.derive import Pod, PodError, RawNumber, effective
from pumice.derive.constraints import images, pod_constraints, queue_affinity, taints
from pumice.derive.owners import PodOwners, is_owner
from pumice.derive.pod import At
from pumice.derive.sub_groups import sub_group, sub_group_policies
from pumice.derive.unevaluated import unevaluated_pod_fields

__all__ = ["Loaded", "ObjectError", "cluster", "namespace", "node", "objects", "pod", "pod_group", "queue"]

# Names the pod group of a pod; the first that is there and not empty counts.
_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
# Added to a node's cpu in milli-cores, and to its memory in bytes (Volcano ed72c7c81, node_info.go).
_OVERSUBSCRIBED_CPU = "volcano.sh/oversubscription-cpu"
_OVERSUBSCRIBED_MEMORY = "volcano.sh/oversubscription-memory"
_NUMBER = re.compile(r"[0-9.]+", re.ASCII)


class ObjectError(ValueError):
    """An object that is no record; the message begins with the field."""


def node(manifest: object) -> v1.Node:
    """A v1 Node: labels, taints, images, allocatable, Ready, unschedulable, Volcano's oversubscription."""
    root = _root(manifest)
    metadata = root.at("metadata")
    return v1.Node(
        name=_name(root),
        uid=metadata.at("uid").string(),
        creation_time=_time(root),
        labels=metadata.at("labels").strings(),
        allocatable=_amounts(root.at("status").at("allocatable")),
        oversubscription=_oversubscription(metadata.at("annotations")),
        ready=_ready(root.at("status").at("conditions")),
        unschedulable=root.at("spec").at("unschedulable").boolean() or False,
        taints=taints(root),
        images=images(root),
    )


def pod(manifest: object, derivation: str = "auto") -> v1.Task:
    """A v1 Pod, counted as `derivation` says: `kubernetes`, `volcano`, or `auto` by the scheduler that it names.

    The record is without `sub_group`, which the pod group decides, and without `owner_selector`, which Services and
    workloads decide: `cluster` fills both.
    """
    root = _root(manifest)
    name = _namespaced(root)
    read = Pod.read(manifest)
    task = effective(read, derivation)
    # A pod without a phase was never seen by an API server: it waits like any new pod.
    status = f"TASK_STATUS_{task.status.upper()}" if read.status.phase else "TASK_STATUS_UNSPECIFIED"
    group = next((read.annotations[key] for key in _GROUP_ANNOTATIONS if read.annotations.get(key)), "")
    return v1.Task(
        name=name,
        uid=root.at("metadata").at("uid").string(),
        job=f"{name.partition('/')[0]}/{group}" if group else "",
        priority=task.priority,
        status=v1.TaskStatus.Value(status),
        node=task.node,
        gated=task.gated,
        nominated_node=task.nominated_node,
        annotations=read.annotations,
        requests=v1.ResourceList(items=task.requests),
        limits=v1.ResourceList(items=task.limits) if task.limits else None,
        nonzero_requests=v1.ResourceList(items=task.nonzero_requests),
        counted_requests=v1.ResourceList(items=task.counted_requests),
        container_nonzero_requests=_list(task.container_nonzero_requests),
        kubernetes_requests=_list(task.kubernetes_requests),
        creation_time=_time(root),
        unevaluated_fields=unevaluated_pod_fields(manifest),
        labels=root.at("metadata").at("labels").strings(),
        constraints=pod_constraints(root),
        role=task.role,
        priority_class_name=task.priority_class,
        scheduling_gates=task.scheduling_gates,
    )


def namespace(manifest: object) -> v1.Namespace:
    """A v1 Namespace: its labels, which the namespace selectors of pods read."""
    root = _root(manifest)
    return v1.Namespace(name=_name(root), labels=root.at("metadata").at("labels").strings())


def queue(manifest: object) -> v1.Queue:
    """A Volcano Queue."""
    root = _root(manifest)
    metadata, spec = root.at("metadata"), root.at("spec")
    return v1.Queue(
        name=_name(root),
        uid=metadata.at("uid").string(),
        creation_time=_time(root),
        annotations=metadata.at("annotations").strings(),
        weight=spec.at("weight").int32(),
        priority=spec.at("priority").int32() or 0,
        state=v1.QueueState.Value(_word(root, "QUEUE_STATE", "state", v1.QueueState.keys())),
        parent=spec.at("parent").string(),
        reclaimable=spec.at("reclaimable").boolean(),
        capability=_amounts(spec.at("capability")),
        deserved=_amounts(spec.at("deserved")),
        guarantee=_amounts(spec.at("guarantee").at("resource")),
        affinity=queue_affinity(root),
    )


def pod_group(manifest: object) -> v1.Job:
    """A Volcano PodGroup, without its priority class, which it only names."""
    root = _root(manifest)
    metadata, spec = root.at("metadata"), root.at("spec")
    return v1.Job(
        name=_namespaced(root),
        uid=metadata.at("uid").string(),
        queue=spec.at("queue").string() or "default",
        creation_time=_time(root),
        phase=v1.JobPhase.Value(_word(root, "JOB_PHASE", "phase", v1.JobPhase.keys())),
        min_member=spec.at("minMember").int32() or 0,
        min_resources=_amounts(spec.at("minResources")),
        annotations=metadata.at("annotations").strings(),
        min_task_member=spec.at("minTaskMember").int32s(),
        sub_group_policies=sub_group_policies(root),
    )


@dataclass
class Loaded:
    """Objects as records, which a feed takes as a whole.

    `refused` says why an object is no record, `unreadable` names these objects to the service, and `left_out` counts
    the kinds that are not read.
    """

    cluster: v1.Cluster = field(default_factory=v1.Cluster)
    refused: list[str] = field(default_factory=list)
    unreadable: list[v1.UnreadableRecord] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)


class _Kind(NamedTuple):
    """Kind of objects: their records so far, the function that reads one, and the kind of the record."""

    records: Any
    read: Callable[[object], Any]
    record: v1.RecordKind.ValueType


def cluster(manifests: Iterable[object], derivation: str = "auto") -> Loaded:
    """Objects, lists of objects too (`kubectl get … -o json`), as records. One that is none keeps no other out."""
    loaded = Loaded()
    kinds = {
        "Node": _Kind(loaded.cluster.nodes, node, v1.RECORD_KIND_NODE),
        "Pod": _Kind(loaded.cluster.tasks, lambda manifest: pod(manifest, derivation), v1.RECORD_KIND_TASK),
        "Queue": _Kind(loaded.cluster.queues, queue, v1.RECORD_KIND_QUEUE),
        "PodGroup": _Kind(loaded.cluster.jobs, pod_group, v1.RECORD_KIND_JOB),
        "Namespace": _Kind(loaded.cluster.namespaces, namespace, v1.RECORD_KIND_NAMESPACE),
    }
    owners = PodOwners()
    unreadable: dict[tuple[int, str], v1.UnreadableRecord] = {}
    pod_groups: dict[str, At] = {}
    for manifest in _flat(manifests):
        if not isinstance(manifest, dict):
            loaded.refused.append("?: not an object")
            continue
        name = str(manifest.get("kind", ""))
        kind = kinds.get(name)
        if is_owner(manifest):
            try:
                owners.add(At(manifest))
            except (ValueError, TypeError) as error:
                loaded.refused.append(f"{name} {_text(_at(manifest, 'metadata', 'name')) or '?'}: {error}")
            continue
        if kind is None:
            loaded.left_out[name] = loaded.left_out.get(name, 0) + 1
            continue
        try:
            record = kind.read(manifest)
        except (ValueError, TypeError) as error:
            # Every error of this package about an object is a ValueError; protobuf raises both for a value of no field.
            loaded.refused.append(f"{name} {_text(_at(manifest, 'metadata', 'name')) or '?'}: {error}")
            mark = _unreadable(kind.record, manifest, error)
            if mark is not None:
                unreadable[kind.record, mark.name] = mark
        else:
            kind.records.append(record)
            unreadable.pop((kind.record, record.name), None)
            if name == "PodGroup":
                pod_groups[record.name] = At(manifest)
            elif name == "Pod":
                owners.add_pod(record.name, At(manifest))
    # A pod group and an owner may stand behind their pods.
    for task in loaded.cluster.tasks:
        if task.job in pod_groups:
            task.sub_group = sub_group(pod_groups[task.job], dict(task.labels))
        owners.complete(task)
    loaded.unreadable.extend(unreadable.values())
    return loaded


def _unreadable(kind: v1.RecordKind.ValueType, manifest: object, error: Exception) -> v1.UnreadableRecord | None:
    """Returns the mark of an object that cannot be read; None: not even its name can."""
    name = _text(_at(manifest, "metadata", "name"))
    if not name:
        return None
    if kind in (v1.RECORD_KIND_TASK, v1.RECORD_KIND_JOB):
        name = f"{_text(_at(manifest, 'metadata', 'namespace')) or 'default'}/{name}"
    mark = v1.UnreadableRecord(kind=kind, name=name)
    text = str(error).encode("utf-8", "replace").decode()
    place, found, message = text.partition(": ")
    if found and isinstance(error, ObjectError | PodError):
        mark.field, mark.message = place, message
    else:
        mark.message = text
    # A phase that cannot be read may be any; a pod without one is a manifest, which occupies no node.
    phase = _at(manifest, "status", "phase")
    if kind == v1.RECORD_KIND_TASK and phase not in (None, "", "Succeeded", "Failed"):
        mark.node = _text(_at(manifest, "spec", "nodeName"))
    return mark


def _at(manifest: object, *path: str) -> object:
    """Returns the value of a field; None: it is not there."""
    value = manifest
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    """Returns a text that a message can hold; empty: the value is none."""
    if not isinstance(value, str) or isinstance(value, RawNumber):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""
    return value


def _flat(manifests: Iterable[object]) -> Iterator[object]:
    """Yields single objects, those of lists one by one, and whatever is no object."""
    for manifest in manifests:
        items = manifest.get("items") if isinstance(manifest, dict) else None
        if isinstance(manifest, dict) and str(manifest.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _flat(items)
        else:
            yield manifest


def objects(manifests: Iterable[object]) -> Iterator[dict[str, Any]]:
    """Single objects, those of lists one by one."""
    for manifest in _flat(manifests):
        if not isinstance(manifest, dict):
            raise ObjectError("not an object")
        yield manifest


def _root(manifest: object) -> At:
    root = At(manifest)
    root.mapping()
    return root


def _name(root: At) -> str:
    name = root.at("metadata").at("name").string()
    if not name:
        raise ObjectError("metadata.name: is missing")
    return name


def _namespaced(root: At) -> str:
    return f"{root.at('metadata').at('namespace').string() or 'default'}/{_name(root)}"


def _time(root: At) -> Timestamp | None:
    place = root.at("metadata").at("creationTimestamp")
    text = place.string()
    if not text:
        return None
    time = Timestamp()
    try:
        time.FromJsonString(text)
    except ValueError:
        raise ObjectError(f"{place.path}: `{text}` is no time") from None
    return time


def _word(root: At, prefix: str, name: str, known: Iterable[str]) -> str:
    place = root.at("status").at(name)
    text = place.string()
    word = f"{prefix}_{text.upper() or 'UNSPECIFIED'}"
    if word not in known or text != text.capitalize() or text == "Unspecified":
        raise ObjectError(f"{place.path}: `{text}` is unknown")
    return word


def _ready(conditions: At) -> bool | None:
    found = conditions.each(lambda item: (item.at("type").string(), item.at("status").string()))
    return next((status == "True" for kind, status in found if kind == "Ready"), None)


def _oversubscription(annotations: At) -> v1.ResourceList | None:
    found = annotations.strings()
    amounts = {}
    for name, key, suffix in (("cpu", _OVERSUBSCRIBED_CPU, "m"), ("memory", _OVERSUBSCRIBED_MEMORY, "")):
        if key in found:
            if not _NUMBER.fullmatch(found[key]):
                raise ObjectError(f"{annotations.path}[{key}]: `{found[key]}` is no number")
            amounts[name] = found[key] + suffix
    return v1.ResourceList(items=amounts) if amounts else None


def _list(items: dict[str, str] | None) -> v1.ResourceList | None:
    return None if items is None else v1.ResourceList(items=items)


def _amounts(at: At) -> v1.ResourceList | None:
    """Amounts as texts, for the service to read: white space is trimmed, a bare number counts by its text."""
    listed = at.mapping()
    if listed is None:
        return None
    amounts = {}
    for name, amount in listed.items():
        if amount is None:
            amounts[name] = "0"
        elif isinstance(amount, str | int | float | RawNumber) and not isinstance(amount, bool):
            amounts[name] = str(amount).strip()
        else:
            raise ObjectError(f"{at.path}[{name}]: is no quantity")
    return v1.ResourceList(items=amounts)
