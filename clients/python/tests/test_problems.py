"""Problems and an unavailable service are errors, and never look like "no node"."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import grpc
import pytest

import pumice
from pumice import errors, table, v1
from pumice._connect import resolve

Caller = Callable[[Any], Any]
GOOD = pumice.task(cpu=5)
NOBODY = pumice.task("default/nobody")
JOBS = [v1.AdmitSubject(job=v1.Job(name=name)) for name in ("default/gang", "default/nobody")]
PREEMPTORS = [
    v1.VictimGroup(preemptor=task, node="n1", candidates=[pumice.task("default/old")])
    for task in (pumice.task("default/gang-0"), NOBODY)
]
CALLS: dict[str, Caller] = {
    "filter": lambda client: client.filter(tasks=[GOOD, NOBODY]),
    "score": lambda client: client.score(tasks=[GOOD, pumice.task(cpu="1x")]),
    "place": lambda client: client.place(groups=[v1.TaskGroup(task=GOOD), v1.TaskGroup(task=NOBODY)]),
    "admit": lambda client: client.admit(items=JOBS),
    "order": lambda client: client.order(jobs=v1.NameSet(names=["default/gang", "default/nobody"])),
    "select_victims": lambda client: client.select_victims(kind=v1.VICTIM_KIND_PREEMPT, groups=PREEMPTORS),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_item_with_a_problem_raises_with_the_whole_response(name: str, loaded: pumice.Client) -> None:
    with loaded.open_session() as session:
        for caller in (loaded, session):
            with pytest.raises(pumice.PumiceError) as raised:
                CALLS[name](caller)
            assert isinstance(raised.value, pumice.ProblemError)
            assert len(raised.value.problems) == 1
            assert raised.value.problems[0].message in str(raised.value)
            assert raised.value.reason == raised.value.problems[0].reason
            assert raised.value.response.HasField("result")
    response = CALLS[name](loaded.with_options(raise_problems=False))
    with pytest.raises(pumice.ProblemError):
        errors.check(response)


async def test_the_asyncio_client_raises_problems_as_well(aclient: pumice.AsyncClient) -> None:
    with pytest.raises(pumice.ProblemError):
        await aclient.filter(tasks=[NOBODY])
    async with await aclient.open_session() as session:
        with pytest.raises(pumice.ProblemError):
            await session.filter(tasks=[NOBODY])


def test_effects_of_a_session_count_when_an_item_has_a_problem(loaded: pumice.Client) -> None:
    with loaded.open_session() as session:
        session.allocate("default/gang-0", "n2")
        with pytest.raises(pumice.ProblemError):
            session.filter(tasks=[NOBODY])
        assert session.effects.applied_through == 1
        assert session.filter(tasks=[pumice.task(cpu=6)]).result.items[0].fit_count == 1


def test_functions_that_read_results_raise_problems() -> None:
    problem = v1.Problem(code=5, reason="TASK_UNKNOWN", message="no such task")
    scored, filtered = v1.ScoreItem(problem=problem), v1.FilterItem(problem=problem)
    groups = [v1.VictimGroup()]
    readers: list[Callable[[], Any]] = [
        lambda: table.fitting(v1.FilterResult(items=[filtered])),
        lambda: table.best_node(scored),
        lambda: table.total_array(scored),
        lambda: list(table.score_rows(v1.ScoreResult(items=[scored]))),
        lambda: list(table.rejection_rows(v1.FilterResult(items=[filtered]))),
        lambda: list(table.place_rows(v1.PlaceResult(groups=[v1.PlacedGroup(problem=problem)]))),
        lambda: list(table.admit_rows(v1.AdmitResult(items=[v1.AdmitItem(problem=problem)]))),
        lambda: list(table.order_rows([v1.Rank(problem=problem)])),
        lambda: list(table.victim_rows(groups, v1.SelectVictimsResult(items=[v1.VictimItem(problem=problem)]))),
    ]
    for read in readers:
        with pytest.raises(pumice.ProblemError) as raised:
            read()
        assert raised.value.code is grpc.StatusCode.NOT_FOUND


def test_no_node_differs_from_nodes_that_cannot_be_read() -> None:
    names, by_slot = v1.NodeSet(names=["n1"]), v1.NodeSet(slots=[0])
    with pytest.raises(ValueError, match="by name"):
        table.slots(names)
    with pytest.raises(ValueError, match="by name"):
        table.slot_array(names)
    with pytest.raises(ValueError, match="by slot"):
        table.best_node(v1.ScoreItem(nodes=by_slot, totals=[1]))
    with pytest.raises(ValueError, match="FILTER_DETAIL_NODES"):
        table.fitting(v1.FilterResult(items=[v1.FilterItem(fit_count=3)]))
    assert table.best_node(v1.ScoreItem()) is None
    assert table.best_node(v1.ScoreItem(nodes=v1.NodeSet(names=["a", "b", "c"]), totals=[1, 3, 3])) == "b"
    assert table.fitting(v1.FilterResult(items=[v1.FilterItem()])) == [[]]


def test_a_job_that_was_not_placed_has_no_placed_tasks() -> None:
    groups = [v1.PlacedGroup(allocated=v1.NodeSet(names=["n1"]))]
    assert list(table.place_rows(v1.PlaceResult(groups=groups, placed_count=1, min_count=2))) == []
    (row,) = table.place_rows(v1.PlaceResult(groups=groups, placed=True))
    assert (row.node, row.pipelined) == ("n1", False)


def test_every_error_of_a_call_is_a_pumice_error() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type):
            assert issubclass(kind, pumice.PumiceError), name


@pytest.fixture
def other_servers() -> Iterator[dict[str, str]]:
    http = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=http.serve_forever, daemon=True).start()
    other = grpc.server(futures.ThreadPoolExecutor())
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield {
            "nothing": "127.0.0.1:1",
            "HTTP": f"127.0.0.1:{http.server_port}",
            "another gRPC service": f"127.0.0.1:{port}",
            "silent": f"127.0.0.1:{silent.getsockname()[1]}",
        }
    other.stop(None)
    http.shutdown()
    http.server_close()


def test_a_wrong_address_is_named_in_the_error(other_servers: dict[str, str]) -> None:
    for name, target in other_servers.items():
        options = pumice.Options(attempts=1, timeout="1s")
        with pumice.connect(target, options=options) as client, pytest.raises(pumice.PumiceError) as raised:
            client.filter(tasks=[GOOD])
        assert target in str(raised.value), name
        assert "gRPC on port 7461" in str(raised.value), name


def test_a_target_without_a_port_has_the_default_port() -> None:
    for target, wanted in {
        "pumice": "pumice:7461",
        "pumice:1": "pumice:1",
        "http://pumice/": "pumice:80",
        "https://pumice": "pumice:443",
        "/run/p.sock": "unix:/run/p.sock",
    }.items():
        assert resolve(target, None, ()).target == wanted
    with pytest.raises(ValueError, match="host is missing"):
        resolve("https://", None, ())


def test_a_limited_score_does_not_name_all_fitting_nodes(loaded: pumice.Client) -> None:
    item = loaded.score(tasks=[pumice.task(cpu=1)], with_filter=True, limit=1).result.items[0]
    assert (len(item.nodes.names), item.filter.fit_count) == (1, 3)
    assert len(item.filter.fit.names) <= 1
    chosen = loaded.score(tasks=[pumice.task(cpu=1)], with_filter=True, limit=1, filter_detail=v1.FILTER_DETAIL_NODES)
    assert len(chosen.result.items[0].filter.fit.names) == 3


def test_times_may_have_a_unit() -> None:
    assert pumice.duration("30s").seconds == 30
    assert pumice.duration("1500ms").nanos == 500_000_000
    assert pumice.duration(0.25).nanos == 250_000_000
    for wrong in ("30", "5 s", "s", "1d"):
        with pytest.raises(ValueError, match="timeout"):
            pumice.Options(timeout=wrong)


def test_refused_records_of_a_feed_are_logged(client: pumice.Client, caplog: pytest.LogCaptureFixture) -> None:
    feed = client.feed("tests")
    with caplog.at_level(logging.WARNING, logger="pumice"):
        outcome = feed.full_sync(v1.Cluster(nodes=[pumice.node("n1", cpu="1x")]))
        assert outcome.refused[0].field in caplog.text
        caplog.clear()
        with feed.open_session(put=v1.Cluster(nodes=[pumice.node("n2", cpu="1x")])):
            assert "source tests" in caplog.text


def test_the_error_of_a_rejected_policy_shows_its_diagnostics(client: pumice.Client) -> None:
    with pytest.raises(errors.InvalidError) as raised:
        client.reload_policy(document="tiers: 1")
    assert raised.value.report is not None
    assert raised.value.report.diagnostics[0].message in str(raised.value)
    assert "line 1" in str(raised.value)
