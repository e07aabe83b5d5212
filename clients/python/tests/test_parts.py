"""Parts of a full sync: nothing is left out, nothing is too large, and pods come with their owners."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server import ROOT

import pumice
from pumice import v1
from pumice._parts import Part, in_parts

DUMPS = [(ROOT / "tests" / "data" / name).read_bytes() for name in ("dump.json", "constraints.json")]


def listed(client: pumice.Client) -> str:
    tasks = [stored.task for stored in client.tasks()]
    # Slots are numbered in the order in which the nodes came.
    nodes = [status.node for status in client.nodes()]
    return "\n".join(map(str, [nodes, client.queues(), client.jobs(), client.namespaces(), tasks]))


def pod(name: str, namespace: str, controller: str = "") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": controller, "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": {"app": "web"}}
    metadata |= {"ownerReferences": [owner]} if controller else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}


def owner(kind: str, name: str, namespace: str, selector: object) -> dict[str, Any]:
    version = "v1" if kind == "Service" else "apps/v1"
    metadata = {"name": name, "namespace": namespace, "annotations": {"much": "text" * 1000}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"selector": selector}}


OWNED = [
    *(pod(f"p{number}", "red", "set") for number in range(6)),
    *(pod(f"p{number}", "blue") for number in range(3)),
    pod("p0", "grey"),
    owner("Service", "web", "red", {"app": "web"}),
    owner("ReplicaSet", "set", "red", {"matchLabels": {"app": "web"}}),
    owner("Service", "other", "blue", {"app": "other"}),
]


def test_each_field_of_a_cluster_is_sent_part_by_part(client: pumice.Client) -> None:
    whole = v1.Cluster(
        nodes=[pumice.node("n1", cpu=1), pumice.node("n2", cpu=1)],
        queues=[v1.Queue(name="q")],
        jobs=[v1.Job(name="default/j", queue="q", priority_class_name="high")],
        tasks=[pumice.task("default/t", cpu=1)],
        namespaces=[v1.Namespace(name="red")],
        priority_classes=[v1.PriorityClass(name="high", value=7)],
        objects=[json.dumps(pod("p", "red")).encode()],
        pod_rules=v1.POD_RULES_VOLCANO,
    )
    assert len(whole.ListFields()) == len(v1.Cluster.DESCRIPTOR.fields)
    feed = client.feed("tests", part_records=1)
    assert not feed.full_sync(whole).refused
    assert feed.position.sequence == 8
    assert [status.node.name for status in client.nodes()] == ["n1", "n2"]
    assert [(status.job.name, status.job.priority) for status in client.jobs()] == [("default/j", 7)]
    assert [status.namespace.name for status in client.namespaces()] == ["red"]
    # Volcano's default priority is 1.
    assert {stored.task.name: stored.task.priority for stored in client.tasks()} == {"default/t": 0, "red/p": 1}


@pytest.mark.parametrize("part_records", [20_000, 4, 1])
def test_objects_in_parts_give_the_state_of_one_message(client: pumice.Client, part_records: int) -> None:
    whole = v1.Cluster(objects=[*DUMPS, json.dumps({"kind": "List", "apiVersion": "v1", "items": OWNED}).encode()])
    batch = v1.Batch(source="tests", source_epoch=1, sequence=1, kind=v1.BATCH_KIND_FULL_SYNC_LAST, part=1, put=whole)
    assert not client.apply(batch=batch).outcome.refused
    expected = listed(client)
    assert "owner_selector" in expected
    feed = client.feed("tests", part_records=part_records)
    assert not feed.full_sync(whole).refused
    assert (feed.position.sequence > 1) == (part_records < 20_000)
    assert listed(client) == expected


def test_parts_are_bounded_in_bytes_and_repeat_only_what_pods_need() -> None:
    objects = [json.dumps(one).encode() for one in OWNED]
    size = max(len(text) for text, one in zip(objects, OWNED, strict=True) if one["kind"] == "Pod")
    parts = list(in_parts(v1.Cluster(objects=objects), [], 20_000, 3 * size))
    named = [
        [(one["metadata"]["namespace"], one["kind"]) for one in map(json.loads, part.put.objects)] for part in parts
    ]
    red = [("red", "Service"), ("red", "ReplicaSet"), *[("red", "Pod")] * 3]
    # The pod of a namespace without owners comes with some owner, which tells that its own do not exist.
    others = [("blue", "Service"), *[("blue", "Pod")] * 3, ("red", "Service"), ("grey", "Pod")]
    assert named == [others, red, red]
    assert all(len(text) < 400 for part in parts for text in part.put.objects)
    tasks = [v1.Task(object=b"x" * 100) for _ in range(10)]
    counts = [len(part.put.tasks) for part in in_parts(v1.Cluster(tasks=tasks), [], 20_000, 350)]
    assert counts == [3, 3, 3, 1]


def test_texts_that_are_no_lists_stay_as_they_are(client: pumice.Client) -> None:
    nodes = [{"metadata": {"name": name}, "status": {"allocatable": {"cpu": "1"}}} for name in ("n1", "n2")]
    typed = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": [*nodes, 7]})
    odd = [
        b'{"kind": "Pod", "metadata": {"name": "broken"',
        b"[" * 100_000,
        b"7",
        b'{"kind": "Service", "metadata": 3}',
    ]
    feed = client.feed("tests", part_records=1)
    outcome = feed.full_sync(v1.Cluster(objects=[typed.encode(), *odd]))
    assert [status.node.name for status in client.nodes()] == ["n1", "n2"]
    assert {problem.reason for problem in outcome.refused} == {"OBJECT_UNREADABLE"}
    assert len(outcome.refused) == 5
    assert any("Pod broken" in problem.message for problem in outcome.refused)
    empty = list(in_parts(v1.Cluster(), [], 1))
    assert [type(part) for part in empty] == [Part]
