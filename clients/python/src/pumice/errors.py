"""Errors of calls, read from the status and its details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from pumice import v1

__all__ = [
    "AbortedError",
    "DeadlineError",
    "EpochChangedError",
    "FeedClosedError",
    "FencedError",
    "IncompleteError",
    "InvalidError",
    "LimitError",
    "NotFoundError",
    "PreconditionError",
    "ProblemError",
    "PumiceError",
    "ResyncError",
    "SessionEndedError",
    "UnavailableError",
    "UnimplementedError",
    "raise_for_problems",
]

_DETAILS = "grpc-status-details-bin"
_SHOWN_DIAGNOSTICS = 3
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_NOT_CONNECTED = "failed to connect to all addresses"
_REMEDY = "Pumice serves gRPC on port 7461 by default; port 7462 serves probes and metrics"
_M = TypeVar("_M", bound=Message)


@dataclass(eq=False)
class PumiceError(Exception):
    """Base class of all errors of this package that are about a call.

    `reason` is a stable code such as `SESSION_EXPIRED`; empty: the service did not answer. `retry_after` is in seconds.
    `report` has the diagnostics of a rejected policy, `response_metadata` the effects of a session's changes, `outcome`
    that of a batch.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    response_metadata: v1.ResponseMetadata | None = None
    report: v1.PolicyReport | None = None
    outcome: v1.BatchOutcome | None = None
    # True: another server may answer where this one did not; and: this one has not got the request.
    moves_on: bool = field(default=False, repr=False)
    never_sent: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        """Code, reason, message and, of a rejected policy, its first diagnostics."""
        word = f" {self.reason}" if self.reason else ""
        lines = [f"{self.code.name}{word}: {self.message}"]
        found = self.report.diagnostics if self.report is not None else []
        for diagnostic in found[:_SHOWN_DIAGNOSTICS]:
            place = f"line {diagnostic.line}, column {diagnostic.column}: " if diagnostic.line else ""
            path = f"{diagnostic.path}: " if diagnostic.path else ""
            lines.append(f"  {place}{path}{diagnostic.message}")
        if len(found) > _SHOWN_DIAGNOSTICS:
            lines.append(f"  … {len(found) - _SHOWN_DIAGNOSTICS} more in `report`")
        return "\n".join(lines)

    @property
    def decided(self) -> bool:
        """True: the service answered, and the call had no effect."""
        undecided = (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
        )
        return bool(self.reason) and self.code not in undecided and self.reason != "SESSION_BUSY"


class UnavailableError(PumiceError):
    """The service is unavailable: it cannot be reached, or is stopping."""


class DeadlineError(PumiceError):
    """The call got no response in time."""


class InvalidError(PumiceError):
    """The request is wrong in any state; `fields` names the wrong fields."""


class NotFoundError(PumiceError):
    """The request names something that does not exist."""


class PreconditionError(PumiceError):
    """The state is not as the request requires."""


class SessionEndedError(PreconditionError):
    """The session has ended, or the service does not know it, or its server is lost: open another one.

    `metadata["server"]` names the server that has the session, if another one says so (`SESSION_UNKNOWN`) or if that
    one cannot be reached while another is in use (`SESSION_UNREACHABLE`: whether the call had an effect is unknown).
    """


class EpochChangedError(PreconditionError):
    """The service was restarted after the revision that the request names."""


class AbortedError(PumiceError):
    """Another caller was faster: a newer policy version, or a concurrent call of one session."""


class LimitError(PumiceError):
    """The call would exceed a limit; `metadata` names it."""


class UnimplementedError(PumiceError):
    """The server does not serve this call."""


class ResyncError(PumiceError):
    """The service needs a full sync of a source, and the feed has no `full` to get the records from."""

    def __init__(self, message: str) -> None:
        """Makes the error of a feed."""
        super().__init__(grpc.StatusCode.FAILED_PRECONDITION, message, "RESYNC_NEEDED")


class FencedError(PumiceError):
    """Another process with a higher epoch writes this source: stop writing."""

    def __init__(self, message: str) -> None:
        """Makes the error of a feed."""
        super().__init__(grpc.StatusCode.FAILED_PRECONDITION, message, "FENCED")


class FeedClosedError(PumiceError):
    """The feed was closed and sends nothing."""

    def __init__(self, source: str) -> None:
        """Makes the error of a feed."""
        super().__init__(grpc.StatusCode.CANCELLED, f"the feed of source `{source}` is closed", "FEED_CLOSED")


class IncompleteError(PumiceError):
    """A response without a result, or without exactly one item for each item of its request."""

    def __init__(self, message: str) -> None:
        """Makes the error of a response."""
        super().__init__(grpc.StatusCode.DATA_LOSS, message, "RESPONSE_INCOMPLETE")

    @property
    def decided(self) -> bool:
        """False: the call may have had an effect."""
        return False


class ProblemError(PumiceError):
    """Items of a response that have a problem instead of a result.

    `problems` lists the problems. `response` is the whole response, whose other items hold; None: the error comes from
    a function that reads one result.
    """

    def __init__(self, problems: list[v1.Problem], response: Any = None) -> None:
        """Makes an error with the first problem in its message."""
        first = problems[0]
        field = f"{first.field}: " if first.field else ""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(_CODES.get(first.code, grpc.StatusCode.UNKNOWN), f"{field}{first.message}{more}", first.reason)
        self.problems = problems
        self.response = response


def raise_for_problems(items: Iterable[Any], response: Any = None) -> None:
    """Raises ProblemError if an item of a result (`response.result.items`) has a problem."""
    problems = [item.problem for item in items if item.HasField("problem")]
    if problems:
        raise ProblemError(problems, response)


def check(response: Any) -> None:
    """Raises ProblemError if an item of the response to a decision call has a problem."""
    result = getattr(response, "result", None)
    if result is None:
        return
    lists = [getattr(result, name, ()) for name in ("items", "groups", "queues", "jobs")]
    raise_for_problems((item for items in lists for item in items), response)


def check_complete(request: Any, response: Any) -> None:
    """Raises IncompleteError if the response to a decision call is not about the items of its request.

    Such a response must not look like one without nodes.
    """
    expected = _expected(request)
    if expected is None:
        return
    if not response.HasField("result"):
        raise IncompleteError("the response has no result")
    for entries, count in expected.items():
        found = len(getattr(response.result, entries))
        if count is not None and found != count:
            raise IncompleteError(f"the response has {found} {entries} instead of {count}")


def _expected(request: Any) -> dict[str, int | None] | None:
    """Returns the number of entries of each list of a result; a number that only the service knows is None."""
    match request:
        case v1.FilterRequest() | v1.ScoreRequest():
            return {"items": len(request.tasks)}
        case v1.PlaceRequest():
            return {"groups": len(request.groups)}
        case v1.AdmitRequest():
            # Without items, a confirmation in a session is about the jobs that the session kept.
            return {"items": len(request.items) or None}
        case v1.SelectVictimsRequest():
            return {"items": len(request.groups)}
        case v1.OrderRequest():
            asked = {"queues": request.queues, "jobs": request.jobs}
            # One rank per distinct name. Without names: one per record.
            ranks = {entries: len(set(names.names)) or None for entries, names in asked.items()}
            return {entries: count if request.HasField(entries) else 0 for entries, count in ranks.items()}  # type: ignore[arg-type]
    return None


_CLASSES: Mapping[grpc.StatusCode, type[PumiceError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
}
_BY_REASON: Mapping[str, type[PumiceError]] = {
    "SESSION_EXPIRED": SessionEndedError,
    "SESSION_UNKNOWN": SessionEndedError,
    "EPOCH_CHANGED": EpochChangedError,
}


def read(error: grpc.RpcError, target: str = "") -> PumiceError:
    """Makes the error of a call to `target`."""
    code, details, trailers = _parts(error)
    read_details = _details(trailers)
    info = read_details.get("ErrorInfo", error_details_pb2.ErrorInfo)
    reason = info.reason if info is not None else ""
    if not reason and target:
        details = _located(code, details, target)
    retry = read_details.get("RetryInfo", error_details_pb2.RetryInfo)
    request = read_details.get("BadRequest", error_details_pb2.BadRequest)
    violations = request.field_violations if request is not None else ()
    made = _BY_REASON.get(reason, _CLASSES.get(code, PumiceError))(
        code=code,
        message=details,
        reason=reason,
        metadata=dict(info.metadata) if info is not None else {},
        fields={violation.field: violation.description for violation in violations},
        retry_after=retry.retry_delay.ToTimedelta().total_seconds() if retry is not None else None,
        response_metadata=read_details.get("ResponseMetadata", v1.ResponseMetadata),
        report=read_details.get("PolicyReport", v1.PolicyReport),
        outcome=read_details.get("BatchOutcome", v1.BatchOutcome),
    )
    away = isinstance(made, UnavailableError | DeadlineError) and made.retry_after is None
    made.moves_on = away or reason == "STORE_FAILED"
    # gRPC does not tell it otherwise. With another text a call that may not be repeated returns its error.
    made.never_sent = code is grpc.StatusCode.UNAVAILABLE and _NOT_CONNECTED in made.message
    return made


def _located(code: grpc.StatusCode, details: str, target: str) -> str:
    """Adds the target to the message of an error that no Pumice server gave, so that a wrong address is seen."""
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"no Pumice server at {target}: {details} ({_REMEDY})"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no response from {target} in time: {details} ({_REMEDY})"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        other = "another program or an older Pumice listens there"
        return f"{target} does not serve this call: {details} ({other}; {_REMEDY})"
    if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
        return f"unusable response from {target}: {details} ({_REMEDY})"
    return details


def _parts(error: Any) -> tuple[grpc.StatusCode, str, Any]:
    """Returns code, message and trailers; the common base class of both kinds of calls does not declare them."""
    return error.code(), error.details() or "", error.trailing_metadata() or ()


class _Details:
    def __init__(self, status: status_pb2.Status) -> None:
        self._packed = {packed.type_url.rpartition(".")[2]: packed.value for packed in status.details}

    def get(self, name: str, message: type[_M]) -> _M | None:
        """The detail of that name, if there is one that can be read."""
        packed = self._packed.get(name)
        if packed is None:
            return None
        try:
            return message.FromString(packed)
        except DecodeError:
            return None


def _details(trailers: Iterable[tuple[str, Any]]) -> _Details:
    for key, value in trailers:
        if key == _DETAILS:
            try:
                return _Details(status_pb2.Status.FromString(value))
            except DecodeError:
                break
    return _Details(status_pb2.Status())
