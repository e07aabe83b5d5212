"""What is asked again, and what never is."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2

import pumice
from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._flow import Invoke, Rpc, Sleep, call


class Failure(grpc.RpcError):
    """A status with details."""

    def __init__(self, code: grpc.StatusCode, reason: str = "", retry_ms: int | None = None) -> None:
        super().__init__()
        self._code = code
        status = status_pb2.Status(code=code.value[0], message="no")
        if reason:
            status.details.append(packed(error_details_pb2.ErrorInfo(reason=reason, domain="pumice")))
        if retry_ms is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(retry_ms)
            status.details.append(packed(retry))
        self._trailers = (("grpc-status-details-bin", status.SerializeToString()),)

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "no"

    def trailing_metadata(self) -> Any:
        return self._trailers


def packed(message: Any) -> Packed:
    found = Packed()
    found.Pack(message)
    return found


def attempts(rpc: Rpc[Any, Any], request: Any, *failures: Failure, **options: Any) -> tuple[int, list[float]]:
    """How often it is asked until it fails or answers, and how long it waits between."""
    flow = call(pumice.Options(**options), rpc, request)
    asked, waits = 0, []
    step = next(flow)
    try:
        while True:
            if isinstance(step, Sleep):
                waits.append(step.seconds)
                step = flow.send(None)
                continue
            assert isinstance(step, Invoke)
            asked += 1
            if asked <= len(failures):
                step = flow.throw(failures[asked - 1])
                continue
            response = rpc.response()
            if "result" in response.DESCRIPTOR.fields_by_name:
                response.result.SetInParent()
            step = flow.send(response)
    except (StopIteration, errors.PumiceError):
        return asked, waits


AWAY = Failure(grpc.StatusCode.UNAVAILABLE)
FULL = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", retry_ms=20)
TOO_LARGE = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
BUSY = Failure(grpc.StatusCode.ABORTED, "SESSION_BUSY")
REPEATED = [rpcs.FILTER, rpcs.SCORE, rpcs.PLACE, rpcs.ADMIT, rpcs.ORDER, rpcs.SELECT_VICTIMS, rpcs.CLOSE_SESSION]
REPEATED += [rpcs.COMMIT_SESSION, rpcs.APPLY, rpcs.GET_NODE_TABLE, rpcs.LIST_TASKS, rpcs.GET_POLICY]


@pytest.mark.parametrize("rpc", REPEATED, ids=lambda rpc: rpc.path)
def test_what_may_be_asked_twice_is(rpc: Rpc[Any, Any]) -> None:
    assert attempts(rpc, rpc.request(), AWAY, AWAY)[0] == 3
    assert attempts(rpc, rpc.request(), *[AWAY] * 9)[0] == 4


@pytest.mark.parametrize("rpc", [rpcs.OPEN_SESSION, rpcs.RELOAD_POLICY, rpcs.ROLLBACK_POLICY], ids=lambda r: r.path)
def test_what_may_not_be_asked_twice_is_not(rpc: Rpc[Any, Any]) -> None:
    assert attempts(rpc, rpc.request(), AWAY)[0] == 1
    # Turned away at the door: nothing has happened.
    asked, waits = attempts(rpc, rpc.request(), FULL)
    assert asked == 2
    assert waits[0] >= 0.02


def test_a_dry_run_may_be_asked_twice() -> None:
    assert attempts(rpcs.RELOAD_POLICY, v1.ReloadPolicyRequest(dry_run=True), AWAY)[0] == 2


def test_assumptions_of_one_session_may_be_released_twice() -> None:
    assert attempts(rpcs.RELEASE_ASSUMPTIONS, v1.ReleaseAssumptionsRequest(session="s"), AWAY)[0] == 2
    assert attempts(rpcs.RELEASE_ASSUMPTIONS, v1.ReleaseAssumptionsRequest(tasks=["a/b"]), AWAY)[0] == 1


def test_a_decided_call_is_not_repeated() -> None:
    for failure in (TOO_LARGE, BUSY, Failure(grpc.StatusCode.INVALID_ARGUMENT, "X"), Failure(grpc.StatusCode.INTERNAL)):
        assert attempts(rpcs.FILTER, v1.FilterRequest(), failure)[0] == 1


def test_an_earlier_attempt_still_at_work_is_waited_for() -> None:
    assert attempts(rpcs.FILTER, v1.FilterRequest(), AWAY, BUSY)[0] == 3


def test_waits_grow_and_stay_within_the_deadline() -> None:
    options = {"attempts": 6, "backoff": 0.1, "max_backoff": 0.4, "timeout": 100.0}
    _, waits = attempts(rpcs.FILTER, v1.FilterRequest(), *[AWAY] * 9, **options)
    for wait, most in zip(waits, (0.1, 0.2, 0.4, 0.4, 0.4), strict=True):
        assert most / 2 <= wait <= most
    assert attempts(rpcs.FILTER, v1.FilterRequest(), AWAY, timeout=0.01, backoff=1, max_backoff=1)[0] == 1


def test_a_server_that_is_away_is_said_so() -> None:
    nobody = pumice.connect("127.0.0.1:1", options=pumice.Options(attempts=2, backoff=0.001))
    with nobody as client, pytest.raises(errors.UnavailableError) as away:
        client.get_server_info()
    assert not away.value.decided
    assert away.value.reason == ""


def test_options_that_mean_nothing_are_refused() -> None:
    for options in ({"timeout": 0}, {"attempts": 0}, {"backoff": -1}, {"attempt_timeout": 0}):
        with pytest.raises(ValueError, match=r"[a-z]+"):
            pumice.Options(**options)  # type: ignore[arg-type]
