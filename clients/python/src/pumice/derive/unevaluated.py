"""Fields of pods that limit placement and that no field of a record carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["unevaluated_pod_fields"]

# Volumes that may be bound to some nodes only, or attached to a few.
_LIMITING_VOLUMES = (
    "persistentVolumeClaim",
    "ephemeral",
    "csi",
    "awsElasticBlockStore",
    "gcePersistentDisk",
    "azureDisk",
    "cinder",
    "iscsi",
    "rbd",
    "vsphereVolume",
    "portworxVolume",
    "fc",
)


def unevaluated_pod_fields(manifest: object) -> list[str]:
    """Names of such fields of a v1 Pod, sorted. A malformed field counts as absent."""
    spec = _mapping(_mapping(manifest).get("spec"))
    fields = {
        "resourceClaims": bool(_items(spec.get("resourceClaims"))),
        "volumes": any(
            isinstance(_mapping(volume).get(kind), Mapping)
            for volume in _items(spec.get("volumes"))
            for kind in _LIMITING_VOLUMES
        ),
    }
    return [name for name, present in fields.items() if present]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
