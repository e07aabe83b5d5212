"""Sessions: numbered changes, lost answers, the end."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

import pumice
from pumice import _rpcs as rpcs
from pumice import errors, table, v1
from pumice._flow import Invoke
from pumice._servers import Server
from pumice._session import ChangeLog, SessionFlow


def test_changes_count_in_the_session_and_nowhere_else(loaded: pumice.Client) -> None:
    big = pumice.task(cpu=6)
    with loaded.open_session() as session:
        session.allocate("default/gang-0", "n2")
        assert list(session.filter(tasks=[big]).result.items[0].fit.names) == ["n3"]
        assert session.effects.applied_through == 1
        assert session.effects.invalidation.nodes.names == ["n2"]
        session.savepoint("here")
        session.allocate("default/gang-1", "n3")
        assert session.flush().applied_through == 3
        assert session.filter(tasks=[big]).result.items[0].fit_count == 0
        session.rollback_to("here")
        assert list(session.filter(tasks=[big]).result.items[0].fit.names) == ["n3"]
        assert {status.node.name for status in session.list_nodes().nodes} == {"n1", "n2", "n3"}
        assert session.node_table().names == ["n1", "n2", "n3"]
    assert loaded.filter(tasks=[big]).result.items[0].fit_count == 2
    assert session.close().applied_through == 4
    with pytest.raises(errors.SessionEndedError) as ended:
        session.filter(tasks=[big])
    assert ended.value.decided


def test_a_refused_change_stays_out(loaded: pumice.Client) -> None:
    with loaded.open_session() as session:
        session.rollback_to("no such mark")
        with pytest.raises(errors.PumiceError) as refused:
            session.flush()
        assert refused.value.decided
        assert refused.value.response_metadata is not None
        assert refused.value.response_metadata.effects.applied_through == 0


def test_a_session_opens_with_its_feeds_changes(loaded: pumice.Client) -> None:
    whole = v1.Cluster(nodes=[pumice.node("m1", cpu=64)])
    feed = loaded.feed("mine", full=lambda: whole)
    with feed.open_session() as session:
        assert session.opened.metadata.revision.number > 0
    with feed.open_session(put=v1.Cluster(nodes=[pumice.node("m2", cpu=64)])) as session:
        assert session.opened.outcome.position.sequence == 2
        assert session.filter(tasks=[pumice.task(cpu=60)]).result.items[0].fit_count == 2
    feed._flow.sequence += 1
    with feed.open_session(put=v1.Cluster(nodes=[pumice.node("m3", cpu=64)])) as session:
        assert list(session.filter(tasks=[pumice.task(cpu=60)]).result.items[0].fit.names) == ["m1"]
    assert feed.position.sequence == 5


def test_a_session_sets_what_its_requests_are_evaluated_against(loaded: pumice.Client) -> None:
    with loaded.open_session() as session, pytest.raises(ValueError, match="a session sets it"):
        session.filter(against=pumice.latest(), tasks=[pumice.task(cpu=1)])


def test_calls_that_change_the_session_are_numbered(loaded: pumice.Client) -> None:
    with loaded.open_session() as session:
        subject = v1.AdmitSubject(job=v1.Job(name="default/gang"))
        assert session.admit(mode=v1.ADMIT_MODE_TENTATIVE, items=[subject]).result.items[0].permitted
        session.job_enqueued("default/gang")
        confirmed = session.admit(mode=v1.ADMIT_MODE_CONFIRM).result.items
        assert [(item.job, item.permitted) for item in confirmed] == [("default/gang", True)]
        session.allocate("default/gang-0", "n2")
        assert session.flush().applied_through == 4
        gang = [v1.TaskGroup(names=["default/gang-1"])]
        placed = session.place(groups=gang, effect=v1.PLACE_EFFECT_SESSION)
        assert [row.node for row in table.place_rows(placed.result)] == ["n3"]
        session.unallocate("default/gang-0")
        assert session.flush().applied_through == 6


class Away(grpc.RpcError):
    """No answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "away"

    def trailing_metadata(self) -> Any:
        return ()


class Wire:
    """Plays a server that applies changes, and loses answers."""

    def __init__(self) -> None:
        self.applied = 0
        self.recorded = 0
        self.lose = False
        self.log: list[tuple[str, int, int]] = []

    def run(self, flow: Any) -> Any:
        try:
            step = next(flow)
            while True:
                assert isinstance(step, Invoke)
                response = self.respond(step)
                lost, self.lose = self.lose, False
                step = flow.throw(Away()) if lost else flow.send(response)
        except StopIteration as done:
            return done.value

    def respond(self, step: Invoke) -> Any:
        against = step.request.against.session
        self.log.append((step.rpc.path.rpartition("/")[2], against.after, len(against.changes)))
        assert against.after <= self.applied, "a gap"
        last = against.after + len(against.changes)
        if getattr(step.request, "mode", 0) == v1.ADMIT_MODE_TENTATIVE:
            last += 1
            self.recorded = last
        assert last >= self.applied or last == self.recorded, "changes that were dropped"
        self.applied = max(self.applied, last)
        effects = v1.SessionEffects(applied_through=self.applied)
        response = step.rpc.response(metadata=v1.ResponseMetadata(effects=effects))
        response.result.SetInParent()
        return response


def flow() -> SessionFlow:
    once = pumice.Options(attempts=1)
    return SessionFlow(once, v1.OpenSessionResponse(session="s"), Server("s"))


def test_changes_whose_response_was_lost_are_sent_again() -> None:
    wire, session = Wire(), flow()
    session.record(evict="a")
    wire.lose = True
    with pytest.raises(errors.UnavailableError):
        wire.run(session.send(rpcs.FILTER, v1.FilterRequest()))
    session.record(evict="b")
    wire.run(session.send(rpcs.FILTER, v1.FilterRequest()))
    wire.run(session.send(rpcs.FILTER, v1.FilterRequest()))
    assert wire.log == [("Filter", 0, 1), ("Filter", 0, 2), ("Filter", 2, 0)]


def test_a_call_that_changes_the_session_is_sent_again_before_the_next() -> None:
    wire, session = Wire(), flow()
    session.record(evict="a")
    wire.lose = True
    tentative = v1.AdmitRequest(mode=v1.ADMIT_MODE_TENTATIVE)
    with pytest.raises(errors.UnavailableError):
        wire.run(session.send(rpcs.ADMIT, tentative))
    session.record(evict="b")
    wire.run(session.send(rpcs.FILTER, v1.FilterRequest()))
    assert wire.log == [("Admit", 0, 1), ("Admit", 0, 1), ("Filter", 2, 1)]
    assert session.log.applied == 3
    assert not session.log.pending


def test_the_log_forgets_only_what_was_sent() -> None:
    log = ChangeLog()
    log.pending = [v1.SessionChange(evict=name) for name in "abc"]
    log.confirm(applied_through=3, sent=2)
    assert [change.evict for change in log.pending] == ["c"]
    log.confirm(applied_through=1, sent=0)
    assert log.applied == 3
