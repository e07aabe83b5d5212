"""The client that waits, against a real server."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import conftest
import grpc
import pytest
from server import Server

import pumice
from pumice import errors, table, v1


def test_filter_and_score(loaded: pumice.Client) -> None:
    task = pumice.task(cpu=5, memory="4Gi")
    passed = loaded.filter(tasks=[task])
    assert table.fitting(passed.result)[0] == ["n2", "n3"]
    rejection = next(table.rejection_rows(passed.result))
    assert (rejection.nodes, rejection.sample, rejection.plugin) == (1, "n1", "resource-fit")
    scored = loaded.score(tasks=[task], with_filter=True, limit=1, with_parts=True)
    errors.raise_for_problems(scored.result.items)
    (row,) = table.score_rows(scored.result)
    assert (row.task, row.node) == (0, "n2")
    assert row.total == sum(row.parts.values())
    assert table.render([row]).splitlines()[0].split() == ["TASK", "NODE", "TOTAL", "PARTS"]
    assert scored.metadata.policy == "default"


def test_slots_read_as_names(loaded: pumice.Client) -> None:
    asked = {"tasks": [pumice.task(cpu=5)], "with_filter": True}
    named = loaded.score(**asked, node_encoding=v1.NODE_ENCODING_NAMES)  # type: ignore[arg-type]
    slotted = loaded.score(**asked, node_encoding=v1.NODE_ENCODING_SLOTS)  # type: ignore[arg-type]
    nodes = loaded.node_table(slotted.metadata.node_table)
    assert list(table.score_rows(named.result)) == list(table.score_rows(slotted.result, nodes))
    item = slotted.result.items[0]
    assert item.nodes.bitmap
    assert table.slot_array(item.nodes).tolist() == table.slots(item.nodes)
    assert table.total_array(item).tolist() == list(item.totals)
    with pytest.raises(ValueError, match="by slot"):
        table.node_names(item.nodes)
    only = loaded.score(
        tasks=[pumice.task(cpu=5)],
        against=v1.EvaluationRef(node_table=nodes.version()),
        candidates=v1.NodeSet(slots=[nodes.names.index("n3")]),
    )
    assert list(only.result.items[0].nodes.names) == ["n3"]
    before = nodes.names[:]
    loaded.feed("more").full_sync(v1.Cluster(nodes=[pumice.node("n4", cpu=1)]))
    assert loaded.node_table(loaded.get_server_info().node_table).names == [*before, "n4"]


def test_an_inline_snapshot_leaves_nothing_behind(client: pumice.Client) -> None:
    against = pumice.inline(conftest.cluster(), conftest.SPREAD)
    best = client.score(against=against, tasks=[pumice.task(cpu=1)], limit=1).result.items[0]
    assert list(best.nodes.names) == ["n2"]
    assert client.nodes() == []


def test_order_victims_and_admission(loaded: pumice.Client) -> None:
    loaded.reload_policy(document="actions: allocate\ntiers: [{plugins: [{name: drf}, {name: binpack}]}]")
    ordered = loaded.order(queues=v1.NameSet(), jobs=v1.NameSet(names=["default/gang"]))
    assert [row.name for row in table.order_rows(ordered.result.jobs)] == ["default/gang"]
    groups = [
        v1.VictimGroup(preemptor=pumice.task("default/gang-0"), node="n1", candidates=[pumice.task("default/old")])
    ]
    victims = loaded.select_victims(kind=v1.VICTIM_KIND_PREEMPT, groups=groups)
    assert len(victims.result.items) == 1
    assert all(row.group == 0 for row in table.victim_rows(groups, victims.result))
    admitted = loaded.admit(items=[v1.AdmitSubject(job=v1.Job(name="default/gang"))])
    assert [row.permitted for row in table.admit_rows(admitted.result)] == [True]


def test_policies_are_refused_with_a_report(loaded: pumice.Client) -> None:
    with pytest.raises(errors.InvalidError) as refused:
        loaded.reload_policy(document="tiers: 1")
    assert refused.value.reason == "POLICY_REJECTED"
    assert refused.value.report is not None
    assert refused.value.report.diagnostics[0].line == 1
    with pytest.raises(errors.AbortedError) as other:
        loaded.reload_policy(document=conftest.SPREAD + "\n# other\n", expected_version=99)
    assert other.value.reason == "VERSION_MISMATCH"
    assert other.value.metadata["policy"] == "default"
    active = loaded.get_policy().policy
    assert active.document == conftest.SPREAD
    assert loaded.rollback_policy(dry_run=True).policy.name == "default"
    assert loaded.list_policies(name="default").policies[0].version == active.version


def test_a_request_can_wait_for_a_position(client: pumice.Client) -> None:
    feed = client.feed("tests")
    feed.full_sync(conftest.cluster())
    against = pumice.latest(positions=[feed.position], max_wait=1)
    assert client.filter(against=against, tasks=[pumice.task(cpu=1)]).result.items[0].fit_count == 3
    later = v1.SourcePosition(source="tests", source_epoch=feed.position.source_epoch, sequence=9)
    with pytest.raises(errors.PreconditionError) as late:
        client.filter(against=pumice.latest(positions=[later]), tasks=[pumice.task(cpu=1)])
    assert late.value.reason == "REVISION_NOT_REACHED"
    old = client.get_server_info().revision
    with pytest.raises(errors.EpochChangedError):
        client.filter(against=pumice.latest(at_least=v1.Revision(epoch=old.epoch + 1)), tasks=[pumice.task(cpu=1)])


def test_a_feed_sends_parts_deltas_and_the_whole_after_a_loss(client: pumice.Client) -> None:
    whole = conftest.cluster()
    feed = client.feed("tests", full=lambda: whole, part_records=2)
    feed.full_sync(whole)
    assert feed.position.sequence == 4
    outcome = feed.delta(remove=v1.Removals(tasks=["default/old"]))
    assert outcome.position.sequence == 5
    assert [stored.task.name for stored in client.tasks()] == ["default/gang-0", "default/gang-1"]
    feed._flow.sequence += 1
    assert feed.delta(remove=v1.Removals(tasks=["default/old"])).position.sequence == 11
    assert len(client.tasks()) == 3
    newer = client.feed("tests", full=lambda: whole)
    newer.full_sync(whole)
    with pytest.raises(errors.FencedError):
        feed.delta(remove=v1.Removals(tasks=["default/old"]))
    with pytest.raises(errors.ResyncError):
        client.feed("nobody").delta(v1.Cluster())


def test_refused_records_are_reported(client: pumice.Client) -> None:
    bad = v1.Cluster(nodes=[pumice.node("n1", cpu="1x"), pumice.node("n2", cpu=1)])
    outcome = client.feed("tests").full_sync(bad)
    assert ["nodes[0]" in problem.field for problem in outcome.refused] == [True]
    assert [status.node.name for status in client.nodes()] == ["n2"]


def test_a_stream_of_batches(client: pumice.Client) -> None:
    batches = [
        v1.Batch(source="s", source_epoch=1, sequence=1, kind=v1.BATCH_KIND_FULL_SYNC_LAST, part=1),
        v1.Batch(source="s", source_epoch=1, sequence=2, put=v1.Cluster(nodes=[pumice.node("n1", cpu=1)])),
    ]
    outcomes = list(client.sync(batches))
    assert outcomes[-1].position.sequence == 2
    assert [status.node.name for status in client.nodes()] == ["n1"]


def test_the_socket_serves_as_the_port_does(server: Server) -> None:
    for target in (str(server.socket), f"unix:{server.socket}", f"http://{server.address}"):
        with pumice.connect(target) as client:
            assert client.get_server_info().version


def test_listings_read_all_pages(client: pumice.Client) -> None:
    names = [f"n{number:05}" for number in range(5001)]
    client.feed("tests").full_sync(v1.Cluster(nodes=[pumice.node(name, cpu=1) for name in names]))
    assert [status.node.name for status in client.nodes()] == names
    assert client.node_table().names == names


def test_both_clients_have_every_call() -> None:
    services = [
        service
        for module in (v1.decision_pb2, v1.state_pb2, v1.policy_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    calls = {"".join(f"_{c.lower()}" if c.isupper() else c for c in m.name)[1:] for s in services for m in s.methods}
    # Of a session, not of the client.
    calls -= {"close_session", "commit_session"}
    for client in (pumice.Client, pumice.AsyncClient):
        assert calls <= set(dir(client)), client
    public = {name for name in dir(pumice.Session) if not name.startswith("_")}
    assert public == {name for name in dir(pumice.AsyncSession) if not name.startswith("_")}
    for name in ("feed", "open_session", "nodes"):
        ours = inspect.signature(getattr(pumice.Client, name)).parameters
        assert list(ours) == list(inspect.signature(getattr(pumice.AsyncClient, name)).parameters)


def test_the_example_places_what_is_pending(server: Server, loaded: pumice.Client) -> None:
    example = Path(__file__).parents[1] / "examples" / "scheduler.py"
    assert len(example.read_text().splitlines()) <= 40
    run = subprocess.run([sys.executable, str(example), server.address], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == [
        "default/gang: 2 placed",
        "default/gang-0 -> n2",
        "default/gang-1 -> n3",
    ]
    more = v1.Cluster(tasks=[pumice.task("default/gang-2", cpu=6, job="default/gang")])
    loaded.feed("more").full_sync(more)
    run = subprocess.run([sys.executable, str(example), server.address], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "default/gang: 0 placed"


def test_a_tls_client_refuses_a_server_without_tls(server: Server) -> None:
    options = pumice.Options(timeout=2, attempts=1)
    tls = pumice.connect(f"https://{server.address}", options=options)
    with tls as client, pytest.raises(errors.UnavailableError) as away:
        client.get_server_info()
    assert away.value.code is grpc.StatusCode.UNAVAILABLE
