"""Fields that records carry, and those that they cannot carry."""

import json
from typing import Any

import pytest

from pumice import kube, v1
from pumice.derive import PodError, read_json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {}}
ALL = {
    "nodeSelector": {"zone": "a"},
    "affinity": {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}, PREFERRED: [{"weight": 3, "preference": {}}]},
        "podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        "podAntiAffinity": {REQUIRED: [TERM]},
    },
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 9}]}],
    "initContainers": [{"name": "d", "ports": [{"hostPort": 81}]}],
    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
    "resourceClaims": [{"name": "gpu"}],
}


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def test_a_pod_names_each_field_that_its_record_cannot_carry() -> None:
    for manifest in (pod(ALL), read_json(json.dumps(pod(ALL)))):
        assert list(kube.pod(manifest).unevaluated_fields) == ["resourceClaims", "volumes"]


def test_constraints_are_read() -> None:
    own = kube.pod(read_json(json.dumps(pod(ALL)))).constraints
    assert dict(own.node_selector) == {"zone": "a"}
    assert own.affinity.node_affinity.HasField("required")
    assert own.affinity.node_affinity.preferred[0].weight == 3
    term = own.affinity.pod_anti_affinity.required[0]
    assert own.affinity.pod_affinity.preferred[0].term == term
    assert term.HasField("namespace_selector")
    assert dict(term.label_selector.match_labels) == {"app": "web"}
    assert [port.port for port in own.host_ports] == [80]
    assert own.topology_spread_constraints[0].when_unsatisfiable == "DoNotSchedule"
    assert list(own.images) == ["i", ""]
    assert own.tolerations[0].operator == "Exists"


def test_a_manifest_on_the_host_network_takes_the_ports_of_its_containers() -> None:
    manifest = pod({"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 9}]}]})
    assert [port.port for port in kube.pod(manifest).constraints.host_ports] == [9]
    stored = {**manifest, "status": {"phase": "Pending"}}
    assert list(kube.pod(stored).constraints.host_ports) == []


@pytest.mark.parametrize("spec", [{"nodeSelector": 3}, {"tolerations": [7]}, {"topologySpreadConstraints": {}}])
def test_malformed_constraints_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(PodError):
        kube.pod(pod(spec))


def test_a_node_carries_taints_and_images() -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"images": [{"names": ["a", "b"], "sizeBytes": 5_000_000_000}]},
    }
    record = kube.node(node)
    assert list(record.taints) == [v1.Taint(key="gpu", effect="NoSchedule")]
    assert list(record.images) == [v1.NodeImage(names=["a", "b"], size_bytes=5_000_000_000)]
