"""Steps of a call, without its waiting: both clients run the same flows."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, cast

import grpc

from pumice import errors, v1
from pumice._servers import Server, ServerList

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
    caller reads `problem` of each item. `return_after` is the time for which an address that failed is not used while
    another one works; `connect` reads it. `target` and `servers` are the addresses; `connect` sets them.
    """

    timeout: float | str = 5.0
    attempts: int = 4
    attempt_timeout: float | str | None = None
    backoff: float | str = 0.05
    max_backoff: float | str = 1.0
    wait_for_ready: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    raise_problems: bool = True
    return_after: float | str = 10.0
    target: str = ""
    servers: ServerList | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        limits = {"timeout": self.timeout, "attempt_timeout": self.attempt_timeout, "return_after": self.return_after}
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
    """One call of the protocol: its path, its messages, and whether it may be repeated.

    `elsewhere` is true of a call that does no harm if another server gets it, too.
    """

    def __init__(
        self,
        path: str,
        request: Callable[P, Any],
        response: type[R],
        repeatable: Callable[[Any], bool] = lambda _request: True,
        *,
        elsewhere: bool = False,
    ) -> None:
        """Makes a call of the path `service/method`."""
        self.path = f"/pumice.v1.{path}"
        self.request = request
        self.response: Any = response
        self.repeatable = repeatable
        self.elsewhere = elsewhere


@dataclass(frozen=True, slots=True)
class Invoke:
    """Step that sends a request to a server and returns the response."""

    rpc: Rpc[Any, Any]
    request: Any
    timeout: float
    options: Options
    server: Server


@dataclass(frozen=True, slots=True)
class Sleep:
    """Step that waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Restore:
    """Step that sends a server what the feeds have sent to others."""

    server: Server
    timeout: float


Flow = Generator[Invoke | Sleep | Restore, Any, R]

# Least time after which a server that did not answer counts as failed. With less, that says nothing about the server.
_PATIENCE = 0.1


def call(options: Options, rpc: Rpc[P, R], request: Any, at: Server | None = None) -> Flow[R]:
    """Makes one call, with retries if repeating it does no harm, and checks the items of the response."""
    response = yield from attempt(options, rpc, request, at)
    errors.check_complete(request, response)
    if options.raise_problems:
        errors.check(response)
    return response


def attempt(options: Options, rpc: Rpc[P, R], request: Any, at: Server | None = None) -> Flow[R]:
    """Makes one call, with retries."""
    response, _server = yield from attempt_at(options, rpc, request, at)
    return response


def attempt_at(options: Options, rpc: Rpc[P, R], request: Any, at: Server | None = None) -> Flow[tuple[R, Server]]:
    """Makes one call, to the server `at` alone or to the one in use and others after it; returns who answered.

    One round goes to each server at most once, without a wait.
    """
    _limit_filter(request)
    deadline = time.monotonic() + seconds("timeout", options.timeout)
    servers = options.servers or ServerList([Server(options.target)])
    repeatable = rpc.repeatable(request)
    rounds, attempts = 1, 0
    while True:
        tried: list[Server] = []
        server = at or servers.in_use()
        while True:
            tried.append(server)
            attempts += 1
            others = 0 if at is not None else len(servers.all) - len(tried)
            try:
                response = yield from _once(options, rpc, request, server, (deadline, others, at))
            except errors.PumiceError as failure:
                error = failure
            else:
                return response, server
            may_move = at is None and error.moves_on and (repeatable or rpc.elsewhere or error.never_sent)
            following = servers.next(tried) if may_move and time.monotonic() < deadline else None
            if following is None:
                break
            server = following
        if len(tried) > 1 and error.moves_on:
            error.message += f"; none of {len(tried)} addresses works, this one was the last"
        delay = _delay(options, error, (rounds, attempts), repeatable=repeatable)
        if delay is None or time.monotonic() + delay >= deadline:
            raise error
        yield Sleep(delay)
        rounds += 1


def _once(
    options: Options, rpc: Rpc[P, R], request: Any, server: Server, within: tuple[float, int, Server | None]
) -> Flow[R]:
    """Sends a request to one server, which first gets what the feeds have sent to others."""
    deadline, others, at = within
    servers = options.servers
    left = max(deadline - time.monotonic(), 0.001)
    bound = None if options.attempt_timeout is None else seconds("attempt_timeout", options.attempt_timeout)
    # Each server that is left gets an equal part of the time.
    timeout = min(left, bound or left / (others + 1))
    sent = False
    try:
        if at is None and servers is not None and not servers.is_restored(server):
            yield Restore(server, timeout)
            servers.restored(server)
        sent = True
        response = yield Invoke(rpc, request, timeout, options, server)
        if at is None and _is_of_another_epoch(request, response, server):
            # The server was restarted after the feeds wrote to it: the response is about a state without their records.
            # A feed that cannot give them tells its owner, who may be about to do so.
            with suppress(errors.ResyncError):
                yield Restore(server, timeout)
                response = yield Invoke(rpc, request, timeout, options, server)
    except grpc.RpcError as raw:
        error = errors.read(raw, server.target)
        impatient = isinstance(error, errors.DeadlineError) and timeout < _PATIENCE
        if servers is not None and error.moves_on and not impatient:
            servers.failed(server, error.message)
        raise error from raw
    except errors.PumiceError as error:
        if sent:
            raise
        # The server lacks records of a feed, or did not take them.
        error.moves_on = error.never_sent = True
        if servers is not None:
            servers.failed(server, error.message)
        raise
    if at is None and servers is not None:
        servers.answered(server, restored=True)
    return cast(R, response)


def _is_of_another_epoch(request: Any, response: Any, server: Server) -> bool:
    """Whether the response is about the state of another process than the one that the feeds wrote to."""
    against = getattr(request, "against", None)
    metadata = getattr(response, "metadata", None)
    if server.epoch == 0 or against is None or metadata is None or against.WhichOneof("target") not in (None, "latest"):
        return False
    return metadata.revision.epoch not in (0, server.epoch)


def _limit_filter(request: Any) -> None:
    """Asks for samples instead of all nodes in the Filter result of a score with a limit, unless the caller chooses."""
    limited = isinstance(request, v1.ScoreRequest) and request.with_filter and request.HasField("limit")
    if limited and request.filter_detail == v1.FILTER_DETAIL_UNSPECIFIED:
        request.filter_detail = v1.FILTER_DETAIL_SAMPLES


def _delay(options: Options, error: errors.PumiceError, done: tuple[int, int], *, repeatable: bool) -> float | None:
    """Returns the wait before the next round, after some rounds and attempts; None: there is none."""
    rounds, attempts = done
    if rounds >= options.attempts:
        return None
    # The service throttled the call, which therefore had no effect, whatever it was.
    throttled = isinstance(error, errors.LimitError) and error.retry_after is not None
    # An earlier attempt of the same call still runs.
    busy = error.reason == "SESSION_BUSY" and attempts > 1
    unavailable = isinstance(error, errors.UnavailableError | errors.DeadlineError)
    if not throttled and not (repeatable and (unavailable or busy)):
        return None
    first, most = seconds("backoff", options.backoff), seconds("max_backoff", options.max_backoff)
    backoff: float = min(first * 2 ** (rounds - 1), most)
    return backoff * random.uniform(0.5, 1.0) + (error.retry_after or 0.0)


# Longest sleep of the way back, so that a client that is closed does not wait for it.
_NAP = 0.2
_PROBE_TIMEOUT = 2.0


def come_back(servers: ServerList, options: Options, health: Rpc[Any, Any]) -> Flow[None]:
    """Looks for a server that is preferred to the one in use, until the first is in use again."""
    while not servers.closed:
        candidate, wait = servers.preferred()
        if candidate is None:
            if wait is None:
                return
            yield Sleep(min(max(wait, 0.001), _NAP))
            continue
        try:
            # Before anybody asks, so that the first question waits for no full sync.
            yield Restore(candidate, _PROBE_TIMEOUT)
            response = yield Invoke(health, health.request(), _PROBE_TIMEOUT, options, candidate)
        except (grpc.RpcError, errors.PumiceError):
            servers.stays_away(candidate)
        else:
            # A server that is stopping answers, and says that it does not serve.
            if response.serving:
                servers.came_back(candidate)
            else:
                servers.stays_away(candidate)
