"""Owners of pods: the Services that select a pod, and the workload that controls it.

Default topology spread constraints count the pods that they select.
"""

from __future__ import annotations

from typing import NamedTuple

from pumice import v1
from pumice.derive.constraints import label_selector
from pumice.derive.pod import At

__all__ = ["PodOwners", "is_owner"]

# Kinds of objects that own pods, with their versions.
_OWNERS = {
    ("v1", "Service"),
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}
# Named by a task whose controller is missing.
_OWNER_SELECTOR = "ownerSelector"


class _OwnedPod(NamedTuple):
    """Pod without spread constraints of its own; `controller` is the kind, namespace and name of its workload."""

    labels: dict[str, str]
    controller: tuple[str, str, str] | None


def is_owner(manifest: dict[str, object]) -> bool:
    """True for Services and for the workloads whose selectors count."""
    return (manifest.get("apiVersion"), manifest.get("kind")) in _OWNERS


class PodOwners:
    """Owners and pods of a cluster: an owner may stand behind its pods."""

    def __init__(self) -> None:
        """Begins without owners."""
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._workloads: dict[tuple[str, str, str], v1.LabelSelector | None] = {}
        self._pods: dict[str, _OwnedPod] = {}

    def add(self, root: At) -> None:
        """Notes the selector of an owner."""
        kind, metadata = root.at("kind").string(), root.at("metadata")
        namespace, name = metadata.at("namespace").string() or "default", metadata.at("name").string()
        selector = root.at("spec").at("selector")
        if kind == "Service":
            services = self._services.setdefault(namespace, {})
            services[name] = selector.strings()
        elif kind == "ReplicationController":
            self._workloads[kind, namespace, name] = v1.LabelSelector(match_labels=selector.strings())
        else:
            self._workloads[kind, namespace, name] = label_selector(selector)

    def add_pod(self, name: str, root: At) -> None:
        """Notes the labels and the controller of a pod."""
        self._pods.pop(name, None)
        if root.at("spec").at("topologySpreadConstraints").each(lambda own: own):
            return
        metadata = root.at("metadata")
        owners = metadata.at("ownerReferences").each(
            lambda own: (
                own.at("controller").boolean() or False,
                (own.at("apiVersion").string(), own.at("kind").string()),
                own.at("name").string(),
            )
        )
        found = next(((version, owner) for controls, version, owner in owners if controls), None)
        controller = None
        if found is not None and found[0] in _OWNERS and found[0][1] != "Service":
            controller = (found[0][1], name.partition("/")[0], found[1])
        self._pods[name] = _OwnedPod(metadata.at("labels").strings(), controller)

    def complete(self, task: v1.Task) -> None:
        """Adds the selector of the pods that belong with a task, or names it where its controller is missing."""
        pod = self._pods.get(task.name)
        if pod is None:
            return
        labels: dict[str, str] = {}
        services = self._services.get(task.name.partition("/")[0], {})
        for _, selector in sorted(services.items()):
            if selector and selector.items() <= pod.labels.items():
                labels.update(selector)
        wanted = v1.LabelSelector()
        if pod.controller is not None:
            if pod.controller not in self._workloads:
                task.unevaluated_fields.append(_OWNER_SELECTOR)
            workload = self._workloads.get(pod.controller)
            if pod.controller[0] == "ReplicationController":
                labels.update(workload.match_labels if workload else {})
            elif workload is not None:
                wanted.match_expressions.extend(workload.match_expressions)
                for key, value in sorted(workload.match_labels.items()):
                    if labels.setdefault(key, value) != value:
                        # Both have to hold, so that the selector matches nothing.
                        wanted.match_expressions.add(key=key, operator="In", values=[value])
        wanted.match_labels.update(labels)
        if wanted.ByteSize() > 0:
            task.constraints.owner_selector.CopyFrom(wanted)
