"""Objects of Kubernetes and Volcano, from which the server derives records: for feeds, and in questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pumice import v1
from pumice._objects import list_items, object_text

__all__ = ["Manifest", "cluster", "pod", "pod_group"]

Manifest = dict[str, Any] | str | bytes
"""An object, or a list of objects: JSON text, as `kubectl get -o json` writes it, or the value of such a text."""


def cluster(
    manifests: Manifest | Iterable[Manifest], *, pod_rules: v1.PodRules.ValueType = v1.POD_RULES_UNSPECIFIED
) -> v1.Cluster:
    """Takes objects for a feed, a session or an inline cluster; text stays as it is.

    The server uses each object or refuses it alone: `refused` of the outcome names the object and the field, and its
    last good record stays in force. `warnings` name objects of kinds that are not read. `pod_rules` chooses the
    scheduler whose rules count for the amounts of pods; by default that which each pod names.
    """
    single = isinstance(manifests, dict | str | bytes)
    listed: Iterable[Any] = [manifests] if single else manifests
    objects: list[bytes] = []
    for manifest in listed:
        # Of a text the server would refuse all objects for one that JSON cannot hold, such as NaN.
        items = list_items(manifest)
        objects.extend([_text(manifest)] if items is None else map(object_text, items))
    return v1.Cluster(objects=objects, pod_rules=pod_rules)


def pod(manifest: Manifest, *, pod_rules: v1.PodRules.ValueType = v1.POD_RULES_UNSPECIFIED) -> v1.Task:
    """Takes a Pod as a task of a question or a record. `node`, `status`, `job` and `sub_group` may be set beside it."""
    return v1.Task(object=_text(manifest), pod_rules=pod_rules)


def pod_group(manifest: Manifest) -> v1.Job:
    """Takes a PodGroup as a job of a question or a record."""
    return v1.Job(object=_text(manifest))


def _text(manifest: Manifest) -> bytes:
    if isinstance(manifest, bytes):
        return manifest
    return manifest.encode() if isinstance(manifest, str) else object_text(manifest)
