"""What a call does, step by step, apart from how it waits: both clients run the same flows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

import grpc

from pumice import errors

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Options:
    """How calls behave.

    `timeout` is the time of a whole call, retries included, in seconds; `attempt_timeout` that of one attempt, None:
    all that is left. Between attempts the client waits `backoff` seconds, twice as long after each, at most
    `max_backoff`, each shortened at random. With `wait_for_ready` a call waits for a service that is not there yet,
    instead of failing. `metadata` goes with every call.
    """

    timeout: float = 5.0
    attempts: int = 4
    attempt_timeout: float | None = None
    backoff: float = 0.05
    max_backoff: float = 1.0
    wait_for_ready: bool = False
    metadata: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuses figures that mean nothing."""
        if self.timeout <= 0 or (self.attempt_timeout is not None and self.attempt_timeout <= 0):
            raise ValueError("timeouts are above 0 seconds")
        if self.attempts < 1:
            raise ValueError("there is at least one attempt")
        if self.backoff < 0 or self.max_backoff < self.backoff:
            raise ValueError("0 <= backoff <= max_backoff")


class Rpc(Generic[P, R]):
    """One call of the protocol: its path, its messages, and whether asking twice does no harm."""

    def __init__(
        self,
        path: str,
        request: Callable[P, Any],
        response: type[R],
        repeatable: Callable[[Any], bool] = lambda _request: True,
    ) -> None:
        """The path is `service/method`."""
        self.path = f"/pumice.v1.{path}"
        self.request = request
        self.response: Any = response
        self.repeatable = repeatable


@dataclass(frozen=True, slots=True)
class Invoke:
    """Asks the service, and comes back with its response."""

    rpc: Rpc[Any, Any]
    request: Any
    timeout: float
    options: Options


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits."""

    seconds: float


Flow = Generator[Invoke | Sleep, Any, R]


def call(options: Options, rpc: Rpc[P, R], request: Any) -> Flow[R]:
    """One call, with retries if asking twice does no harm."""
    deadline = time.monotonic() + options.timeout
    repeatable = rpc.repeatable(request)
    attempt = 1
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            response = yield Invoke(rpc, request, min(left, options.attempt_timeout or left), options)
            return cast(R, response)
        except grpc.RpcError as raw:
            error = errors.read(raw)
            delay = _delay(options, error, attempt, repeatable=repeatable)
            if delay is None or time.monotonic() + delay >= deadline:
                raise error from raw
        yield Sleep(delay)
        attempt += 1


def _delay(options: Options, error: errors.PumiceError, attempt: int, *, repeatable: bool) -> float | None:
    """How long to wait before the next attempt; None: there is none."""
    if attempt >= options.attempts:
        return None
    # The service refused it at its door: nothing happened, whatever was asked.
    refused = isinstance(error, errors.LimitError) and error.retry_after is not None
    # An earlier attempt of the same question is still at work.
    busy = error.reason == "SESSION_BUSY" and attempt > 1
    away = isinstance(error, errors.UnavailableError | errors.DeadlineError)
    if not refused and not (repeatable and (away or busy)):
        return None
    backoff: float = min(options.backoff * 2 ** (attempt - 1), options.max_backoff)
    return backoff * random.uniform(0.5, 1.0) + (error.retry_after or 0.0)
