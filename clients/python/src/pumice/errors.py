"""What a call can fail with, read from the status and its details."""

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
    "FencedError",
    "InvalidError",
    "LimitError",
    "NotFoundError",
    "NotServedError",
    "PreconditionError",
    "ProblemError",
    "PumiceError",
    "ResyncError",
    "SessionEndedError",
    "UnavailableError",
    "raise_for_problems",
]

_DETAILS = "grpc-status-details-bin"
_M = TypeVar("_M", bound=Message)


@dataclass(eq=False)
class PumiceError(Exception):
    """A call that failed as a whole.

    `reason` is a stable word such as `SESSION_EXPIRED`, empty if the service did not answer. `retry_after` is in
    seconds. `report` is there for a refused policy, `stamp` for a question in a session, `outcome` for a batch.
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

    def __str__(self) -> str:
        """Code, reason and message."""
        word = f" {self.reason}" if self.reason else ""
        return f"{self.code.name}{word}: {self.message}"

    @property
    def decided(self) -> bool:
        """The service has answered, and what was asked did not happen."""
        undecided = (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
        )
        return bool(self.reason) and self.code not in undecided and self.reason != "SESSION_BUSY"


class UnavailableError(PumiceError):
    """The service is away, or is stopping."""


class DeadlineError(PumiceError):
    """No answer within the time that the call had."""


class InvalidError(PumiceError):
    """The request is wrong, whatever the state is; `fields` say where."""


class NotFoundError(PumiceError):
    """Something that the request names is not there."""


class PreconditionError(PumiceError):
    """The state is not as the request takes it to be."""


class SessionEndedError(PreconditionError):
    """The session is over, or is not known any more: open another one."""


class EpochChangedError(PreconditionError):
    """The service was restarted since the revision that the request names."""


class AbortedError(PumiceError):
    """Somebody else was faster: another policy version, or two changes of one session at once."""


class LimitError(PumiceError):
    """A limit would be exceeded; `metadata` names it."""


class NotServedError(PumiceError):
    """The service does not serve this call."""


class ResyncError(Exception):
    """A source is out of step and has nobody to ask for a snapshot; send one."""


class FencedError(Exception):
    """Another process writes this source, with a higher epoch: stop writing."""


class ProblemError(Exception):
    """Items of a batch that have no answer."""

    def __init__(self, problems: list[v1.Problem]) -> None:
        """Lists them all, the first one in the message."""
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first.field}: {first.message}{more}")
        self.problems = problems


def raise_for_problems(items: Iterable[Any]) -> None:
    """Raises if an item of an answer (`response.result.items`) has a problem instead of a verdict."""
    problems = [item.problem for item in items if item.HasField("problem")]
    if problems:
        raise ProblemError(problems)


_CLASSES: Mapping[grpc.StatusCode, type[PumiceError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitError,
    grpc.StatusCode.UNIMPLEMENTED: NotServedError,
}
_BY_REASON: Mapping[str, type[PumiceError]] = {
    "SESSION_EXPIRED": SessionEndedError,
    "SESSION_UNKNOWN": SessionEndedError,
    "EPOCH_CHANGED": EpochChangedError,
}


def read(error: grpc.RpcError) -> PumiceError:
    """The error of a call."""
    code, details, trailers = _parts(error)
    read_details = _details(trailers)
    info = read_details.get("ErrorInfo", error_details_pb2.ErrorInfo)
    reason = info.reason if info is not None else ""
    retry = read_details.get("RetryInfo", error_details_pb2.RetryInfo)
    request = read_details.get("BadRequest", error_details_pb2.BadRequest)
    violations = request.field_violations if request is not None else ()
    return _BY_REASON.get(reason, _CLASSES.get(code, PumiceError))(
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


def _parts(error: Any) -> tuple[grpc.StatusCode, str, Any]:
    """Both kinds of calls have these methods; their common base class does not."""
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
