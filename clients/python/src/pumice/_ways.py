"""Ways of a feed's changes to several servers, each of which gets all of them; both clients use them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pumice import errors, v1
from pumice._feed import FeedFlow, FeedOptions, FeedState, changed
from pumice._flow import Flow, Options
from pumice._servers import Server

# Number of changes that wait for a server; beyond it a full sync takes their place.
_MOST_WAITING = 1000


class Change:
    """A call of a feed's owner, with its outcome at each server."""

    def __init__(self, run: Callable[[FeedFlow], Flow[v1.BatchOutcome]], *, whole: bool) -> None:
        """Makes a change that `run` sends; `whole` is true of a full sync, which needs nothing before it."""
        self.run = run
        self.whole = whole
        self.outcomes: dict[Server, v1.BatchOutcome] = {}

    @staticmethod
    def full_sync(records: v1.Cluster, unreadable: list[v1.UnreadableRecord]) -> Change:
        """Replaces all records."""
        return Change(lambda flow: flow.full_sync(records, unreadable), whole=True)

    @staticmethod
    def delta(put: v1.Cluster | None, remove: v1.Removals | None, unreadable: list[v1.UnreadableRecord]) -> Change:
        """Changes some."""
        return Change(lambda flow: flow.delta(put, remove, unreadable), whole=False)

    @staticmethod
    def opening(
        put: v1.Cluster | None, remove: v1.Removals | None, unreadable: list[v1.UnreadableRecord]
    ) -> Change | None:
        """Changes that come with a session; None: there are none."""
        return Change.delta(put, remove, unreadable) if changed(put, remove, unreadable) else None


class Way:
    """Changes of a feed that wait for one server. `lock` and `wake` are the client's own."""

    def __init__(self, server: Server, flow: FeedFlow, lock: Any, wake: Any) -> None:
        """Makes a way on which nothing waits."""
        self.server = server
        self.flow = flow
        self.lock = lock
        self.wake = wake
        self.waiting: deque[Change] = deque()

    def add(self, change: Change) -> None:
        """Lets a change wait for its server."""
        if len(self.waiting) >= _MOST_WAITING:
            self.waiting.clear()
            self.flow.lose()
        self.waiting.append(change)
        self.wake.set()

    def drain(self) -> Flow[None]:
        """Sends what waits. After a loss only a full sync is sent: the changes are part of it."""
        while self.waiting:
            change = self.waiting.popleft()
            if not change.whole and not self.flow.in_sync:
                self.flow.lose()
                continue
            try:
                change.outcomes[self.server] = yield from change.run(self.flow)
            except errors.PumiceError:
                if change.whole and not self.flow.can_repair:
                    # Nobody else has these records.
                    self.waiting.appendleft(change)
                raise

    def deliver(self, change: Change) -> Flow[v1.BatchOutcome]:
        """Sends what waits, and a change, unless that was among it."""
        yield from self.drain()
        if self.server not in change.outcomes:
            change.outcomes[self.server] = yield from change.run(self.flow)
        return change.outcomes[self.server]

    def open_session(
        self, against: v1.EvaluationRef | None, opening: tuple[Any, Any, Any], change: Change | None, lease: Any
    ) -> Flow[tuple[v1.OpenSessionResponse, Server]]:
        """Opens a session, with its changes unless they were among what waits."""
        yield from self.drain()
        if change is not None and self.server in change.outcomes:
            opening = (None, None, ())
        opened = yield from self.flow.open_session(against, *opening, lease)
        if change is not None:
            change.outcomes[self.server] = opened[0].outcome
        return opened


def ways(
    options: Options, source: str, own: FeedOptions, lock: Callable[[], Any], event: Callable[[], Any]
) -> list[Way]:
    """Makes the ways of a feed, under one epoch: a process that is fenced by one server is fenced by all."""
    servers = options.servers.all if options.servers is not None else [Server(options.target)]
    state = FeedState()
    return [Way(server, FeedFlow(options, source, own, server, state), lock(), event()) for server in servers]


def lacks_records(way: Way) -> errors.ResyncError:
    """Makes the error of a server that needs a full sync of a feed that cannot give one."""
    return errors.ResyncError(
        f"source `{way.flow.source}`: the server at {way.server.target} lacks its records; call full_sync, or give the "
        "feed `full`"
    )


def server_after(error: errors.PumiceError, options: Options, tried: list[Server]) -> Server | None:
    """Returns the server at which a feed goes on after a failure; None: nowhere."""
    if options.servers is None or not error.moves_on:
        return None
    return options.servers.next(tried)
