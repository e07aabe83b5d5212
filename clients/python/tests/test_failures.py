"""Every call, alone and in a session, and every way in which its response can fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from test_retries import Failure

import pumice
from pumice import errors, table, v1

TASK = pumice.task(cpu=1)
TWO = [TASK, TASK]
JOB = v1.AdmitSubject(job=v1.Job(name="j"))
# A name that is given twice has one rank.
NAMES = v1.NameSet(names=["a", "b", "a"])
GROUPS = [v1.TaskGroup(task=TASK)] * 2

Script = Callable[[], Any]


@dataclass
class Way:
    """A call about two items, and the result with some items."""

    ask: Callable[[Any], Any]
    response: Any
    item: Any
    items: str = "items"
    session_only: bool = False

    def respond(self, items: int, problems: int = 0) -> Any:
        response = self.response()
        response.result.SetInParent()
        for at in range(items):
            item = getattr(response.result, self.items).add()
            if at >= items - problems:
                item.problem.CopyFrom(v1.Problem(code=5, reason="TASK_UNKNOWN", message="no such task"))
        return response


WAYS = {
    "filter": Way(lambda caller: caller.filter(tasks=TWO), v1.FilterResponse, v1.FilterItem),
    "score": Way(lambda caller: caller.score(tasks=TWO, with_filter=True, limit=1), v1.ScoreResponse, v1.ScoreItem),
    "place": Way(lambda caller: caller.place(groups=GROUPS), v1.PlaceResponse, v1.PlacedGroup, "groups"),
    "place that changes": Way(
        lambda caller: caller.place(groups=GROUPS, effect=v1.PLACE_EFFECT_SESSION),
        v1.PlaceResponse,
        v1.PlacedGroup,
        "groups",
        session_only=True,
    ),
    "admit": Way(lambda caller: caller.admit(items=[JOB, JOB]), v1.AdmitResponse, v1.AdmitItem),
    "admit that changes": Way(
        lambda caller: caller.admit(items=[JOB, JOB], mode=v1.ADMIT_MODE_TENTATIVE),
        v1.AdmitResponse,
        v1.AdmitItem,
        session_only=True,
    ),
    "order": Way(lambda caller: caller.order(jobs=NAMES), v1.OrderResponse, v1.Rank, "jobs"),
    "select_victims": Way(
        lambda caller: caller.select_victims(kind=v1.VICTIM_KIND_PREEMPT, groups=[v1.VictimGroup()] * 2),
        v1.SelectVictimsResponse,
        v1.VictimItem,
    ),
}


def fails(code: grpc.StatusCode, reason: str = "", retry_ms: int | None = None) -> Callable[[Way], Any]:
    return lambda _way: Failure(code, reason, retry_ms)


AWAY = (errors.UnavailableError, errors.DeadlineError)
FAILURES: dict[str, tuple[Callable[[Way], Any], tuple[type[errors.PumiceError], ...]]] = {
    "unavailable": (fails(grpc.StatusCode.UNAVAILABLE), AWAY),
    "unavailable, and says so": (fails(grpc.StatusCode.UNAVAILABLE, "STOPPING"), AWAY),
    "its deadline": (fails(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"), AWAY),
    "hangs": (lambda _way: time.sleep(1), AWAY),
    "breaks off": (fails(grpc.StatusCode.INTERNAL), (errors.PumiceError,)),
    "something unknown": (fails(grpc.StatusCode.UNKNOWN), (errors.PumiceError,)),
    "throttled": (fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", 1), (errors.LimitError,)),
    "too large": (fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED"), (errors.LimitError,)),
    "a wrong request": (fails(grpc.StatusCode.INVALID_ARGUMENT, "ENUM_INVALID"), (errors.InvalidError,)),
    "a lost session": (fails(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_EXPIRED"), (errors.SessionEndedError,)),
    "a busy session": (fails(grpc.StatusCode.ABORTED, "SESSION_BUSY"), (errors.AbortedError,)),
    "no such call": (fails(grpc.StatusCode.UNIMPLEMENTED), (errors.UnimplementedError,)),
    "no right": (fails(grpc.StatusCode.PERMISSION_DENIED), (errors.PumiceError,)),
    "canceled": (fails(grpc.StatusCode.CANCELLED), (errors.PumiceError,)),
    "an empty message": (lambda way: way.response(), (errors.IncompleteError,)),
    "an empty result": (lambda way: way.respond(0), (errors.IncompleteError,)),
    "an item too few": (lambda way: way.respond(1), (errors.IncompleteError,)),
    "an item too many": (lambda way: way.respond(3, 1), (errors.IncompleteError,)),
    "a problem": (lambda way: way.respond(2, 1), (errors.ProblemError,)),
    "nothing but problems": (lambda way: way.respond(2, 2), (errors.ProblemError,)),
}


@dataclass
class Scripted(grpc.GenericRpcHandler):
    """A service whose decisions follow a script."""

    script: Script = field(default=lambda: None)
    calls: int = 0

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]

        def handle(_request: bytes, context: Any) -> bytes:
            if method == "OpenSession":
                return v1.OpenSessionResponse(session="s").SerializeToString()
            if method == "CloseSession":
                return b""
            self.calls += 1
            response = self.script()
            if isinstance(response, Failure):
                context.set_trailing_metadata(response.trailing_metadata())
                context.abort(response.code(), response.details())
            sent: bytes = b"" if response is None else response.SerializeToString()
            return sent

        return grpc.unary_unary_rpc_method_handler(handle)


@pytest.fixture(scope="module")
def scripted() -> Iterator[tuple[Scripted, str]]:
    service = Scripted()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), handlers=[service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, f"127.0.0.1:{port}"
    server.stop(None)


OPTIONS = pumice.Options(timeout=0.3, attempts=2, backoff=0.001, max_backoff=0.001)
CELLS = [(way, failure) for way in WAYS for failure in FAILURES]


@pytest.mark.parametrize(("way", "failure"), CELLS)
def test_every_failure_of_every_call_is_reported(way: str, failure: str, scripted: tuple[Scripted, str]) -> None:
    (service, address), asked, (script, kinds) = scripted, WAYS[way], FAILURES[failure]
    service.script = lambda: script(asked)
    with pumice.connect(address, options=OPTIONS) as client, client.open_session() as session:
        for caller in (session,) if asked.session_only else (client, session):
            # A second time as well: what has no response is sent again before it.
            for _ in range(2):
                with pytest.raises(kinds) as raised:
                    asked.ask(caller)
                assert isinstance(raised.value, errors.PumiceError)
                if isinstance(raised.value, errors.ProblemError):
                    assert raised.value.response.HasField("result")
        service.script = lambda: asked.respond(2)
        assert asked.ask(session).HasField("result")
        if not asked.session_only:
            assert asked.ask(client).HasField("result")


@pytest.mark.parametrize("failure", FAILURES)
async def test_every_failure_is_reported_by_the_asyncio_client(failure: str, scripted: tuple[Scripted, str]) -> None:
    (service, address), (script, kinds) = scripted, FAILURES[failure]
    for asked in WAYS.values():
        service.script = lambda asked=asked: script(asked)  # type: ignore[misc]
        async with pumice.aio.connect(address, options=OPTIONS) as client, await client.open_session() as session:
            for caller in (session,) if asked.session_only else (client, session):
                with pytest.raises(kinds):
                    await asked.ask(caller)


def test_an_incomplete_response_is_an_error_for_callers_that_read_problems(scripted: tuple[Scripted, str]) -> None:
    service, address = scripted
    options = pumice.Options(raise_problems=False)
    with pumice.connect(address, options=options) as client, client.open_session() as session:
        for asked in WAYS.values():
            service.script = lambda asked=asked: asked.respond(1, 1)  # type: ignore[misc]
            for caller in (session,) if asked.session_only else (client, session):
                with pytest.raises(errors.IncompleteError) as raised:
                    asked.ask(caller)
                assert not raised.value.decided
        # All records are asked for, whose number only the service knows.
        service.script = v1.OrderResponse
        with pytest.raises(errors.IncompleteError):
            client.order(jobs=v1.NameSet())
        service.script = lambda: v1.OrderResponse(result=v1.OrderResult(jobs=[v1.Rank(name="a")]))
        assert len(client.order(jobs=v1.NameSet()).result.jobs) == 1
        with pytest.raises(errors.IncompleteError):
            client.order(queues=v1.NameSet())


def test_functions_that_read_results_refuse_columns_of_other_nodes() -> None:
    names = v1.NodeSet(names=["a", "b"])
    part = v1.ScorePart(plugin="binpack", scores=[1])
    for unlike in (
        v1.ScoreItem(nodes=names),
        v1.ScoreItem(nodes=names, totals=[1]),
        v1.ScoreItem(totals=[1]),
        v1.ScoreItem(nodes=names, totals=[1, 2], parts=[part]),
        v1.ScoreItem(nodes=v1.NodeSet(bitmap=b"\x05"), totals=[1]),
    ):
        for read in (
            table.best_node,
            table.total_array,
            lambda item: list(table.score_rows(v1.ScoreResult(items=[item]))),
        ):
            with pytest.raises(ValueError, match="nodes and"):
                read(unlike)
    with pytest.raises(ValueError, match="limit above 0"):
        table.best_node(v1.ScoreItem(filter=v1.FilterItem(fit_count=3)))
    cut = v1.FilterItem(fit=v1.NodeSet(names=["a"]), fit_count=3)
    with pytest.raises(ValueError, match="without limit"):
        table.fitting(v1.FilterResult(items=[cut]))
