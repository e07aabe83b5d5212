"""Steps of a call, without its waiting: both clients run the same flows."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

import grpc

from pumice import errors, v1

P = ParamSpec("P")
R = TypeVar("R")


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)


def seconds(name: str, value: float | str) -> float:
    """Reads a time: a number of seconds, or a text with a unit such as "30s"."""
    if not isinstance(value, str):
        return float(value)
    found = _SPAN.fullmatch(value)
    if found is None:
        raise ValueError(f"{name}: {value!r} is no time; give seconds as a number, or a text such as '30s' or '200ms'")
    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of calls. Times are in seconds, or texts with a unit such as "30s" or "200ms".

    `timeout` bounds a whole call with its retries; `attempt_timeout` bounds one attempt, None: the time that is left.
    Between attempts the client waits `backoff`, which doubles after each up to `max_backoff`, less a random part of up
    to one half. With `wait_for_ready` a call waits for a server that is not there yet. `metadata` is sent with every
    call.
    `raise_problems` lets a decision call raise ProblemError if an item of the response has a problem; without it the
    caller reads `problem` of each item. `target` names the server in messages; `connect` sets it.
    """

    timeout: float | str = 5.0
    attempts: int = 4
    attempt_timeout: float | str | None = None
    backoff: float | str = 0.05
    max_backoff: float | str = 1.0
    wait_for_ready: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    raise_problems: bool = True
    target: str = ""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        limits = {"timeout": self.timeout, "attempt_timeout": self.attempt_timeout}
        for name, value in limits.items():
            if value is not None and seconds(name, value) <= 0:
                raise ValueError(f"{name}: {value!r} is not above 0 s")
        if self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts} is below 1")
        backoff, max_backoff = seconds("backoff", self.backoff), seconds("max_backoff", self.max_backoff)
        if not 0 <= backoff <= max_backoff:
            raise ValueError(
                f"backoff: {self.backoff!r} is not between 0 s and max_backoff, which is {self.max_backoff!r}"
            )


class Rpc(Generic[P, R]):
    """One call of the protocol: its path, its messages, and whether it may be repeated."""

    def __init__(
        self,
        path: str,
        request: Callable[P, Any],
        response: type[R],
        repeatable: Callable[[Any], bool] = lambda _request: True,
    ) -> None:
        """Makes a call of the path `service/method`."""
        self.path = f"/pumice.v1.{path}"
        self.request = request
        self.response: Any = response
        self.repeatable = repeatable


@dataclass(frozen=True, slots=True)
class Invoke:
    """Step that sends a request and returns the response."""

    rpc: Rpc[Any, Any]
    request: Any
    timeout: float
    options: Options


@dataclass(frozen=True, slots=True)
class Sleep:
    """Step that waits."""

    seconds: float


Flow = Generator[Invoke | Sleep, Any, R]


def call(options: Options, rpc: Rpc[P, R], request: Any) -> Flow[R]:
    """Makes one call, with retries if repeating it does no harm, and checks the items of the response."""
    response = yield from attempt(options, rpc, request)
    errors.check_complete(request, response)
    if options.raise_problems:
        errors.check(response)
    return response


def attempt(options: Options, rpc: Rpc[P, R], request: Any) -> Flow[R]:
    """Makes one call, with retries."""
    _limit_filter(request)
    deadline = time.monotonic() + seconds("timeout", options.timeout)
    bound = None if options.attempt_timeout is None else seconds("attempt_timeout", options.attempt_timeout)
    repeatable = rpc.repeatable(request)
    number = 1
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            response = yield Invoke(rpc, request, min(left, bound or left), options)
            return cast(R, response)
        except grpc.RpcError as raw:
            error = errors.read(raw, options.target)
            delay = _delay(options, error, number, repeatable=repeatable)
            if delay is None or time.monotonic() + delay >= deadline:
                raise error from raw
        yield Sleep(delay)
        number += 1


def _limit_filter(request: Any) -> None:
    """Asks for samples instead of all nodes in the Filter result of a score with a limit, unless the caller chooses."""
    limited = isinstance(request, v1.ScoreRequest) and request.with_filter and request.HasField("limit")
    if limited and request.filter_detail == v1.FILTER_DETAIL_UNSPECIFIED:
        request.filter_detail = v1.FILTER_DETAIL_SAMPLES


def _delay(options: Options, error: errors.PumiceError, attempt: int, *, repeatable: bool) -> float | None:
    """Returns the wait before the next attempt; None: there is none."""
    if attempt >= options.attempts:
        return None
    # The service throttled the call, which therefore had no effect, whatever it was.
    throttled = isinstance(error, errors.LimitError) and error.retry_after is not None
    # An earlier attempt of the same call still runs.
    busy = error.reason == "SESSION_BUSY" and attempt > 1
    unavailable = isinstance(error, errors.UnavailableError | errors.DeadlineError)
    if not throttled and not (repeatable and (unavailable or busy)):
        return None
    first, most = seconds("backoff", options.backoff), seconds("max_backoff", options.max_backoff)
    backoff: float = min(first * 2 ** (attempt - 1), most)
    return backoff * random.uniform(0.5, 1.0) + (error.retry_after or 0.0)
