"""Feeds: heartbeats, and records that cannot be read."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import conftest
import grpc
import pytest
from server import Server
from test_retries import Failure

import pumice
from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._feed import FeedFlow, FeedOptions
from pumice._flow import Flow, Invoke, Options

STALE = 2.0
AWAY = Failure(grpc.StatusCode.UNAVAILABLE)


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[Server]:
    """A server that soon calls a source stale."""
    started = Server(tmp_path, "--source-stale-ms", "2000")
    yield started
    started.stop()


def eventually(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def source(client: pumice.Client, name: str) -> v1.SourceStatus:
    listed = client.get_server_info().sources
    return next(status for status in listed if status.position.source == name)


def test_an_idle_feed_stays_heard(brief: Server) -> None:
    with pumice.connect(brief.address) as client:
        idle = client.feed("idle")
        silent = client.feed("silent", heartbeat=0)
        dropped = client.feed("dropped")
        for feed in (idle, silent, dropped):
            feed.full_sync(conftest.cluster() if feed is idle else v1.Cluster())
        eventually("without a heartbeat the source is stale", lambda: source(client, "silent").stale)
        end = time.monotonic() + 1.5 * STALE
        while time.monotonic() < end:
            status = source(client, "idle")
            assert status.synced
            assert not status.stale
            time.sleep(0.05)
        # Heartbeats have numbers of their own, and the next change follows them.
        outcome = idle.delta(remove=v1.Removals(tasks=["default/old"]))
        assert outcome.position.sequence >= 3
        assert not outcome.HasField("resync")
        assert len(client.tasks()) == 2
        idle.close()
        idle.close()
        with pytest.raises(errors.FeedClosedError):
            idle.delta(v1.Cluster())
        eventually("the closed source is stale", lambda: source(client, "idle").stale)
        assert not source(client, "dropped").stale
        del feed, dropped
        gc.collect()
        eventually("the source that nobody holds is stale", lambda: source(client, "dropped").stale)
        with client.with_options(timeout=5).feed("other") as other:
            other.full_sync(v1.Cluster())
        with pytest.raises(errors.FeedClosedError):
            other.full_sync(v1.Cluster())
        open_one = client.feed("open")
        open_one.full_sync(v1.Cluster())
    names = ("pumice-feed-open", "pumice-feed-other", "pumice-feed-idle")
    eventually("the threads end", lambda: not [thread for thread in threading.enumerate() if thread.name in names])


async def test_an_idle_feed_of_the_asyncio_client_stays_heard(brief: Server) -> None:
    async with pumice.aio.connect(brief.address) as client:
        idle, silent = client.feed("idle"), client.feed("silent", heartbeat=0)
        await idle.full_sync(conftest.cluster())
        await silent.full_sync(v1.Cluster())
        await asyncio.sleep(1.5 * STALE)
        found = {status.position.source: status for status in (await client.get_server_info()).sources}
        assert [found[name].stale for name in ("idle", "silent")] == [False, True]
        assert (await idle.delta(remove=v1.Removals(tasks=["default/old"]))).position.sequence >= 3
        await idle.close()
        with pytest.raises(errors.FeedClosedError):
            await idle.delta()
        async with client.feed("other") as other:
            await other.full_sync(v1.Cluster())
        held = client.feed("held")
        await held.full_sync(v1.Cluster())
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pumice-")]


def test_a_heartbeat_restores_a_restarted_service(brief: Server, tmp_path: Path) -> None:
    options = pumice.Options(attempts=1, max_backoff="100ms")
    folder = tmp_path / "again"
    folder.mkdir()
    with pumice.connect(brief.address, options=options) as client:
        feed = client.feed("tests", full=conftest.cluster)
        feed.full_sync(conftest.cluster())
        waiting = client.feed("waiting")
        waiting.full_sync(v1.Cluster())
        brief.stop()
        again = Server(folder, "--source-stale-ms", "2000", "--grpc-address", brief.address)
        try:
            patient = client.with_options(attempts=20)
            eventually("the records are back", lambda: len(patient.tasks()) == 3)
            # Without `full` nobody but the owner has the records, and the owner hears of it.
            eventually("the loss is known", lambda: not waiting._flow.in_sync)
            with pytest.raises(errors.ResyncError):
                waiting.delta(v1.Cluster())
            waiting.full_sync(v1.Cluster())
        finally:
            feed.close()
            again.stop()


class Wire:
    """Plays a server whose answers can be lost."""

    def __init__(self) -> None:
        self.lose = False
        self.epoch = 7
        self.limits = {"source_stale_ms": 3000}
        self.log: list[tuple[str, int]] = []
        self.error: Failure | None = None

    def run(self, flow: Flow[Any]) -> Any:
        try:
            step = next(flow)
            while True:
                assert isinstance(step, Invoke)
                response = self.respond(step)
                step = flow.throw(AWAY) if self.lose else flow.send(response)
        except StopIteration as done:
            return done.value

    def respond(self, step: Invoke) -> Any:
        revision = v1.Revision(epoch=self.epoch, number=1)
        if step.rpc is rpcs.GET_SERVER_INFO:
            self.log.append(("info", 0))
            limits = [v1.ServerLimit(name=name, value=value) for name, value in self.limits.items()]
            return v1.GetServerInfoResponse(revision=revision, limits=limits)
        batch = step.request.batch
        self.log.append((v1.BatchKind.Name(batch.kind).removeprefix("BATCH_KIND_"), batch.sequence))
        position = v1.SourcePosition(sequence=batch.sequence)
        return v1.ApplyResponse(outcome=v1.BatchOutcome(position=position, revision=revision))


def flow(heartbeat: float | None = None) -> FeedFlow:
    own = FeedOptions.of(conftest.cluster, 1, 1000, heartbeat)
    return FeedFlow(Options(attempts=1, max_backoff=0.1), "tests", own)


def test_a_lost_heartbeat_keeps_its_number_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    wire, feed = Wire(), flow()
    wire.run(feed.full_sync(v1.Cluster()))
    assert 0.9 < wire.run(feed.beat()) <= 1.0
    feed._heard -= 0.5
    assert 0.4 < wire.run(feed.beat()) <= 0.5
    feed._heard -= 0.5
    wire.lose = True
    with caplog.at_level(logging.WARNING, logger="pumice"):
        waits = [wire.run(feed.beat()) for _ in range(5)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert len(caplog.records) == 1
    wire.lose = False
    assert wire.run(feed.beat()) == 1.0
    wire.run(feed.delta(v1.Cluster(), None, ()))
    assert wire.log == [("FULL_SYNC_LAST", 1), ("info", 0), *[("DELTA", 2)] * 6, ("DELTA", 3)]
    # The service was restarted with another limit.
    wire.epoch, wire.limits = 8, {"source_stale_ms": 600}
    feed._heard -= 1
    wire.run(feed.beat())
    assert wire.run(feed.beat()) == pytest.approx(0.2, abs=0.1)


def test_a_repair_does_not_hide_a_change_of_the_owner() -> None:
    wire, feed = Wire(), flow()
    wire.lose = True
    with pytest.raises(errors.UnavailableError):
        wire.run(feed.full_sync(v1.Cluster()))
    wire.lose = False
    loss = feed.lost()
    assert loss is not None
    records = loss.full()
    # While the records are gathered, the owner has a change, which is lost.
    wire.lose = True
    with pytest.raises(errors.UnavailableError):
        wire.run(feed.delta(v1.Cluster(), None, ()))
    wire.lose = False
    wire.run(feed.repair(loss, records))
    again = feed.lost()
    assert again is not None
    wire.run(feed.repair(again, records))
    assert feed.in_sync
    assert feed.lost() is None


def test_the_owner_may_hold_a_lock_that_full_needs(brief: Server) -> None:
    lock, asked = threading.Lock(), threading.Event()

    def full() -> v1.Cluster:
        asked.set()
        with lock:
            return conftest.cluster()

    with pumice.connect(brief.address) as client, client.feed("tests", full=full) as feed:
        feed.full_sync(conftest.cluster())
        with lock:
            feed._flow.in_sync = False
            assert asked.wait(30), "the heartbeat has not found the loss"
            # The heartbeat waits for the lock, and does not hold the feed.
            owner = futures.ThreadPoolExecutor().submit(feed.full_sync, conftest.cluster())
            assert not owner.result(timeout=30).HasField("resync")
        eventually("the feed is in sync", lambda: feed._flow.in_sync)


@pytest.mark.parametrize(
    ("limits", "interval"),
    [({"source_stale_ms": 45_000}, 15.0), ({"source_stale_ms": 1}, 0.01), ({"sources": 9}, 20.0), ({}, 20.0)],
)
def test_the_interval_is_a_third_of_the_limit_in_force(limits: dict[str, int], interval: float) -> None:
    wire, feed = Wire(), flow()
    wire.limits = limits
    wire.run(feed.full_sync(v1.Cluster()))
    assert wire.run(feed._heartbeat_interval()) == interval
    assert wire.run(flow(5)._heartbeat_interval()) == 5
    with pytest.raises(ValueError, match="heartbeat"):
        flow(-1)


def test_a_record_that_cannot_be_read_leaves_the_last_good_one_in_force(
    client: pumice.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def task(name: str, node: str) -> v1.Task:
        return pumice.task(name, cpu=1, node=node, status=v1.TASK_STATUS_RUNNING)

    nodes = [pumice.node("n1", cpu=8), pumice.node("n2", cpu=8)]
    good = v1.Cluster(nodes=nodes, tasks=[task("default/p1", "n1")])
    bad = v1.Cluster(tasks=[task("default/p3", "n2")])
    marks = [
        v1.UnreadableRecord(kind=v1.RECORD_KIND_NODE, name="n1", field="labels", message="is no map"),
        v1.UnreadableRecord(kind=v1.RECORD_KIND_TASK, name="default/p1", node="n1"),
        v1.UnreadableRecord(kind=v1.RECORD_KIND_TASK, name="default/p2", node="n2"),
    ]
    feed = client.feed("tests", heartbeat=0)
    feed.full_sync(good)

    def invalid() -> dict[str, str]:
        nodes = {status.node.name: status.invalid for status in client.nodes()}
        tasks = {stored.task.name: stored.invalid for stored in client.tasks()}
        return {name: " ".join(problem.reason for problem in found) for name, found in {**nodes, **tasks}.items()}

    marked = {"n1": "UNREADABLE_RECORD", "n2": "TASK_UNREADABLE", "default/p1": "UNREADABLE_RECORD", "default/p3": ""}
    with caplog.at_level(logging.WARNING, logger="pumice"):
        # The rest of the batch arrives.
        feed.delta(bad, unreadable=iter(marks))
        assert invalid() == marked
        for named in ("node `n1`", "task `default/p1`", "task `default/p2`"):
            assert named in caplog.text
        assert "refused" not in caplog.text
        caplog.clear()
        feed.delta(unreadable=marks)
        assert not caplog.text
    # A full sync does not remove them, and removes n2, which it leaves out.
    feed.full_sync(bad, unreadable=marks)
    assert invalid().keys() == {"n1", "default/p1", "default/p3"}
    feed.full_sync(good, unreadable=[v1.UnreadableRecord(kind=v1.RECORD_KIND_QUEUE, name="")])
    assert invalid() == {"n1": "", "n2": "", "default/p1": ""}
    with feed.open_session(unreadable=marks[:1]) as session:
        assert session.opened.outcome.refused[0].reason == "UNREADABLE_RECORD"
    # After a loss the marks of the change are part of the full sync.
    whole = client.feed("tests", full=lambda: good, heartbeat=0)
    whole.delta(unreadable=marks[:1])
    assert invalid() == {"n1": "UNREADABLE_RECORD", "n2": "", "default/p1": ""}


def test_a_feed_sends_labels_again_that_a_policy_reads_by_now(client: pumice.Client) -> None:
    def reload(plugin: str) -> list[str]:
        document = f"actions: allocate\ntiers: [{{plugins: [{{name: {plugin}}}]}}]\n"
        return list(client.reload_policy(document=document).awaited_sources)

    def everything() -> v1.Cluster:
        plain, labelled = (pumice.node(name, cpu=8, memory="32Gi") for name in ("plain", "labelled"))
        labelled.labels["zone"] = "a"
        return v1.Cluster(nodes=[plain, labelled])

    reload("binpack")
    feed = client.feed("tests", full=everything)
    feed.full_sync(everything())
    assert reload("predicates") == ["tests"]
    task = pumice.task("default/new", cpu=1)
    task.constraints.node_selector["zone"] = "a"
    with pytest.raises(errors.PumiceError):
        client.filter(tasks=[task])
    feed.delta(put=v1.Cluster())
    found = client.filter(tasks=[task]).result.items[0]
    assert list(found.fit.names) == ["labelled"]
