"""Fields that records cannot carry."""

import json
from typing import Any

import pytest

from pumice import kube
from pumice.derive import read_json

ALL = {
    "nodeSelector": {"zone": "a"},
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    },
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
    "resourceClaims": [{"name": "gpu"}],
}
NAMES = [
    "hostPorts",
    "nodeAffinity",
    "nodeSelector",
    "podAffinity",
    "podAntiAffinity",
    "resourceClaims",
    "topologySpreadConstraints",
    "volumes",
]


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def test_a_pod_names_each_field_that_limits_it() -> None:
    assert list(kube.pod(pod(ALL)).unevaluated_fields) == NAMES
    assert list(kube.pod(read_json(json.dumps(pod(ALL)))).unevaluated_fields) == NAMES


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {}, "affinity": {"nodeAffinity": {}}, "topologySpreadConstraints": [], "resourceClaims": []},
        {"nodeSelector": 3, "affinity": "x", "topologySpreadConstraints": {}, "volumes": [7, {"emptyDir": {}}]},
        {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
    ],
)
def test_empty_and_malformed_fields_count_as_absent(spec: dict[str, Any]) -> None:
    assert list(kube.pod(pod(spec)).unevaluated_fields) == []


@pytest.mark.parametrize(
    ("key", "effect", "cordoned", "ready", "named"),
    [
        ("gpu", "NoSchedule", False, "True", True),
        ("gpu", "NoExecute", True, "False", True),
        ("gpu", "PreferNoSchedule", False, "True", False),
        ("node.kubernetes.io/unschedulable", "NoSchedule", True, "True", False),
        ("node.kubernetes.io/unschedulable", "NoSchedule", False, "True", True),
        ("node.kubernetes.io/not-ready", "NoExecute", False, "False", False),
        ("node.kubernetes.io/unreachable", "NoExecute", False, "Unknown", False),
        ("node.kubernetes.io/not-ready", "NoExecute", False, "True", True),
    ],
)
def test_a_node_names_taints_that_no_other_field_carries(
    key: str, effect: str, cordoned: bool, ready: str, named: bool
) -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": cordoned, "taints": [{"key": key, "effect": effect}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    assert list(kube.node(node).unevaluated_fields) == (["taints"] if named else [])
