"""Objects of Kubernetes are records, and may be asked about; those that are no records are named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from test_parts import DUMPS, listed

import pumice
from pumice import errors, kube, table, v1

SPREAD = "actions: allocate\ntiers: [{plugins: [{name: predicates}, {name: binpack}]}]\n"
Object = dict[str, Any]


def node(name: str, cpu: object = "8") -> Object:
    status = {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "9"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, cpu: object, **spec: object) -> Object:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    own = {"containers": [container], **spec}
    phase = "Running" if "nodeName" in spec else "Pending"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own, "status": {"phase": phase}}


def list_of(*items: object) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


FORMS: list[Callable[[bytes], v1.Cluster]] = [
    kube.cluster,
    lambda dump: kube.cluster(dump.decode()),
    lambda dump: kube.cluster(json.loads(dump)),
    lambda dump: kube.cluster(iter(json.loads(dump)["items"])),
]


@pytest.mark.parametrize("dump", DUMPS)
def test_each_form_of_a_manifest_gives_the_same_state(client: pumice.Client, dump: bytes) -> None:
    states = set()
    for form in FORMS:
        assert not client.feed("tests").full_sync(form(dump)).refused
        states.add(listed(client))
    (state,) = states
    for kind in ("Node", "Pod", "Queue", "PodGroup"):
        named = [one["metadata"]["name"] for one in json.loads(dump)["items"] if one["kind"] == kind]
        assert named
        assert all(name in state for name in named)


def test_an_object_that_is_no_record_is_named_and_keeps_no_other_out(
    client: pumice.Client, caplog: pytest.LogCaptureFixture
) -> None:
    good = [node("n1"), node("n2"), pod("p1", "2", nodeName="n1")]
    bad: list[kube.Manifest] = [
        {"kind": "NodeList", "apiVersion": "v1", "items": [7, {**node("n3"), "kind": "Node"}, None]},
        node("n1", []),
        pod("p1", "two", nodeName="n1"),
        pod("p2", "1", nodeName=float("nan")),
        pod("p\ud800", "1"),
        pod("p4", "1"),
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}},
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p5", "namespace": "red"',
    ]
    feed = client.feed("tests", heartbeat=0)
    feed.full_sync(kube.cluster(good))
    with caplog.at_level(logging.WARNING, logger="pumice"):
        outcome = feed.delta(kube.cluster(bad))
    assert {problem.reason for problem in outcome.refused} == {"OBJECT_UNREADABLE"}
    assert len(outcome.refused) == 7
    refused = {problem.message.partition(":")[0]: problem.field for problem in outcome.refused}
    assert refused.keys() == {"an object", "Node n1", "Pod p1", "Pod p2", "Pod red/p5", "Pod "}
    assert refused["Pod p1"] == 'batch.put.objects[4].spec.containers[0].resources.requests["cpu"]'
    assert "Pod p1: " in caplog.text
    (warning,) = (one for one in outcome.warnings if one.reason == "KIND_NOT_READ")
    assert warning.field == "batch.put.objects[8]"
    nodes = {status.node.name: len(status.invalid) for status in client.nodes()}
    tasks = {stored.task.name: len(stored.invalid) for stored in client.tasks()}
    assert (nodes, tasks) == ({"n1": 1, "n2": 0, "n3": 0}, {"default/p1": 1, "default/p4": 0})
    # A full sync does not remove them, and removes what it leaves out.
    feed.full_sync(kube.cluster(bad))
    assert [status.node.name for status in client.nodes()] == ["n1", "n3"]
    feed.full_sync(kube.cluster(good))
    assert not any(status.invalid for status in client.nodes())


def test_a_value_that_is_no_json_is_an_error_of_the_caller() -> None:
    manifest = node("n1")
    manifest["metadata"]["creationTimestamp"] = datetime(2026, 11, 1, tzinfo=timezone.utc)
    with pytest.raises(TypeError, match="datetime"):
        kube.cluster(manifest)


def test_a_request_may_carry_objects(client: pumice.Client) -> None:
    client.reload_policy(document=SPREAD)
    feed = client.feed("tests", heartbeat=0)
    labelled = node("n2")
    labelled["metadata"]["labels"] = {"zone": "a"}
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    feed.full_sync(kube.cluster([node("n1"), labelled, queue]))
    asked = pod("p1", "2", nodeSelector={"zone": "a"})
    for manifest in (asked, json.dumps(asked), json.dumps(asked).encode()):
        passed = client.filter(tasks=[kube.pod(manifest)])
        assert table.fitting(passed.result) == [["n2"]]
    with pytest.raises(errors.ProblemError, match="Pod p1") as refused:
        client.score(tasks=[kube.pod(pod("p1", "two")), kube.pod(asked)])
    assert refused.value.response.result.items[1].nodes.names
    group = {"metadata": {"name": "gang"}, "spec": {"minMember": 2, "queue": "research"}}
    admitted = client.admit(items=[v1.AdmitSubject(job=kube.pod_group(group))])
    assert admitted.result.items[0].permitted
    against = pumice.inline(kube.cluster([node("n7")]), SPREAD)
    scored = client.score(against=against, tasks=[kube.pod(pod("p1", "2"))], limit=1)
    assert table.best_node(scored.result.items[0]) == "n7"
    with feed.open_session(put=kube.cluster(asked)) as session:
        session.allocate("default/p1", "n2")
        stored = session.list_tasks(names=["default/p1"]).tasks[0]
    assert (stored.task.node, dict(stored.task.requests.items)) == ("n2", {"cpu": "2"})


def test_rules_count_the_pods_and_references_remove_them(client: pumice.Client) -> None:
    def priorities() -> list[int]:
        return [stored.task.priority for stored in client.tasks()]

    pods = [pod("p1", "1"), pod("p2", "1")]
    feed = client.feed("tests")
    feed.full_sync(kube.cluster(pods))
    assert priorities() == [0, 0]
    # Volcano's default priority is 1.
    feed.delta(kube.cluster(pods[:1], pod_rules=v1.POD_RULES_VOLCANO))
    assert priorities() == [1, 0]
    task = kube.pod(pods[1], pod_rules=v1.POD_RULES_VOLCANO)
    task.node, task.status = "n1", v1.TASK_STATUS_BINDING
    feed.delta(v1.Cluster(tasks=[task]))
    assert priorities() == [1, 1]
    assert client.tasks(["default/p2"])[0].task.node == "n1"
    feed.delta(remove=v1.Removals(objects=[v1.ObjectReference(kind="Pod", name="p1")]))
    assert [stored.task.name for stored in client.tasks()] == ["default/p2"]


async def test_the_asyncio_client_sends_objects(aclient: pumice.AsyncClient) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red", "labels": {"team": "red"}}}
    async with aclient.feed("tests") as feed:
        outcome = await feed.full_sync(kube.cluster([list_of(node("n1"), namespace), pod("p1", "1")]))
    assert not outcome.refused
    assert (await aclient.filter(tasks=[kube.pod(pod("p2", "7"))])).result.items[0].fit_count == 1
    (stored,) = await aclient.namespaces()
    assert dict(stored.namespace.labels) == {"team": "red"}
