"""Fields of pods and nodes that limit placement and that no field of a record carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.derive.pod import RawNumber

__all__ = ["unevaluated_node_fields", "unevaluated_pod_fields"]

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TERMS = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def unevaluated_pod_fields(manifest: object) -> list[str]:
    """Names of such fields of a v1 Pod, sorted. A malformed field counts as absent."""
    spec = _mapping(_mapping(manifest).get("spec"))
    affinity = _mapping(spec.get("affinity"))
    fields = {
        "hostPorts": _has_host_ports(spec),
        "nodeAffinity": _has_terms(affinity.get("nodeAffinity")),
        "nodeSelector": bool(_mapping(spec.get("nodeSelector"))),
        "podAffinity": _has_terms(affinity.get("podAffinity")),
        "podAntiAffinity": _has_terms(affinity.get("podAntiAffinity")),
        "resourceClaims": bool(_items(spec.get("resourceClaims"))),
        "topologySpreadConstraints": bool(_items(spec.get("topologySpreadConstraints"))),
        "volumes": any(
            isinstance(_mapping(volume).get(kind), Mapping)
            for volume in _items(spec.get("volumes"))
            for kind in ("persistentVolumeClaim", "ephemeral")
        ),
    }
    return [name for name, present in fields.items() if present]


def unevaluated_node_fields(manifest: object) -> list[str]:
    """Names of such fields of a v1 Node. A malformed field counts as absent."""
    root = _mapping(manifest)
    spec = _mapping(root.get("spec"))
    cordoned = spec.get("unschedulable") is True
    conditions = [_mapping(item) for item in _items(_mapping(root.get("status")).get("conditions"))]
    ready = next((item.get("status") for item in conditions if item.get("type") == "Ready"), "True")
    for taint in (item for item in _items(spec.get("taints")) if isinstance(item, Mapping)):
        key = taint.get("key")
        carried = (cordoned and key == _UNSCHEDULABLE) or (ready != "True" and key in _NOT_READY)
        if taint.get("effect") != "PreferNoSchedule" and not carried:
            return ["taints"]
    return []


def _has_host_ports(spec: Mapping[str, Any]) -> bool:
    on_host = spec.get("hostNetwork") is True
    containers = [item for name in ("containers", "initContainers") for item in _items(spec.get(name))]
    ports = [_mapping(port) for item in containers for port in _items(_mapping(item).get("ports"))]
    return bool(ports) and (on_host or any(_is_positive(port.get("hostPort")) for port in ports))


def _is_positive(number: object) -> bool:
    """True of a number above 0, also of one that `read_json` kept as text."""
    if isinstance(number, RawNumber):
        return number.isdecimal() and int(number) > 0
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _has_terms(affinity: object) -> bool:
    terms = [_mapping(affinity).get(name) for name in _TERMS]
    return any(isinstance(term, list | Mapping) and bool(term) for term in terms)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
