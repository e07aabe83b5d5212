"""Feed of the client for asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pumice import errors, v1
from pumice._feed import FeedFlow, FeedOptions
from pumice._loop import Event, Lock, Worker, wait
from pumice._servers import Server
from pumice._ways import Change, Way, lacks_records, server_after, ways
from pumice.build import duration

if TYPE_CHECKING:
    from pumice.aio import AsyncClient, AsyncSession

R = TypeVar("R")
# Wait of a worker that has nothing to do before it is woken.
_LONG = 1e6
_RESTORES = 3


class AsyncFeed:
    """A source of records. Its batches are numbered; after a loss the feed sends a full sync.

    The service refuses a bad record and applies the rest; the last good record of that name stays in force. `refused`
    of the outcome names the refused records, and the logger "pumice" gets a warning for each. Records that the caller
    cannot read are `unreadable`. `kube.cluster` makes records of objects of Kubernetes.

    From the first call until `close`, or until nobody holds the feed, it sends heartbeats while it is idle. With
    several addresses every server gets every change: that in use within the call, the others from tasks of the feed.
    """

    def __init__(self, client: AsyncClient, source: str, own: FeedOptions) -> None:
        """`AsyncClient.feed` makes one."""
        self._client = client
        self._ways = ways(client.options, source, own, Lock, Event)
        self._lock = Lock()
        self._begun = False
        self._workers: list[Worker] = []
        self._ended = Event()
        weakref.finalize(self, _end, self._ended, [way.wake for way in self._ways])

    @property
    def _flow(self) -> FeedFlow:
        return self._way(self._client._servers.in_use()).flow

    @property
    def position(self) -> v1.SourcePosition:
        """Number of the last batch to the server in use, of that server; a request can wait for it."""
        flow = self._flow
        return v1.SourcePosition(source=flow.source, source_epoch=flow.source_epoch, sequence=flow.sequence)

    async def full_sync(
        self, records: v1.Cluster, *, unreadable: Iterable[v1.UnreadableRecord] = ()
    ) -> v1.BatchOutcome:
        """Replaces all records of the source. Those that are unreadable stay, if the service has a good one."""
        change = Change.full_sync(records, list(unreadable))
        return await self._send(change, lambda way: self._client.run(way.deliver(change)))

    async def delta(
        self,
        put: v1.Cluster | None = None,
        remove: v1.Removals | None = None,
        *,
        unreadable: Iterable[v1.UnreadableRecord] = (),
    ) -> v1.BatchOutcome:
        """Sends changes. After a loss it sends a full sync with the records of `full`; without `full`: ResyncError."""
        change = Change.delta(put, remove, list(unreadable))
        return await self._send(change, lambda way: self._client.run(way.deliver(change)))

    async def open_session(
        self,
        against: v1.EvaluationRef | None = None,
        *,
        put: v1.Cluster | None = None,
        remove: v1.Removals | None = None,
        unreadable: Iterable[v1.UnreadableRecord] = (),
        lease: float | str | None = None,
    ) -> AsyncSession:
        """Sends changes and opens a session after them, in one call."""
        span = None if lease is None else duration(lease)
        opening = (put, remove, list(unreadable))
        change = Change.opening(*opening)
        opened, server = await self._send(
            change, lambda way: self._client.run(way.open_session(against, opening, change, span))
        )
        return self._client._session(opened, server)

    async def close(self) -> None:
        """Ends the feed: it sends no more batches, and its source becomes stale. Closing twice is allowed.

        A heartbeat that is under way may still arrive.
        """
        self._flow.closed = True
        _end(self._ended, [way.wake for way in self._ways])
        for worker in self._workers:
            worker.stop()

    async def __aenter__(self) -> AsyncFeed:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    def _way(self, server: Server) -> Way:
        return next(way for way in self._ways if way.server is server)

    async def _send(self, change: Change | None, deliver: Callable[[Way], Awaitable[R]]) -> R:
        """Sends a change to the server in use, or the next one after its failure, and lets it wait for the others."""
        servers = self._client._servers
        async with self._lock:
            self._begin()
            tried: list[Server] = []
            server = servers.in_use()
            for way in self._ways:
                if change is not None and way.server is not server:
                    way.add(change)
            while True:
                tried.append(server)
                way = self._way(server)
                try:
                    async with way.lock:
                        result = await deliver(way)
                except errors.PumiceError as error:
                    following = server_after(error, self._client.options, tried)
                    if following is None:
                        raise
                    server = following
                else:
                    servers.answered(server, restored=False)
                    await self._follow(server)
                    return result

    async def _follow(self, server: Server) -> None:
        """Sends what waits to another server that came into use meanwhile: a question that follows goes there."""
        used = self._client._servers.in_use()
        if used is not server:
            way = self._way(used)
            # If it fails, so does the question.
            with suppress(errors.PumiceError):
                async with way.lock:
                    await self._client.run(way.drain())

    def _begin(self) -> None:
        several = len(self._ways) > 1
        if self._begun or self._ended.is_set() or (self._flow.heartbeat == 0 and not several):
            self._begun = True
            return
        self._begun = True
        for way in self._ways:
            work = partial(_keep_alive, weakref.ref(self), self._ended, way)
            self._workers.append(Worker(work, f"pumice-feed-{way.flow.source}"))

    async def _restore(self, server: Server, timeout: float) -> None:
        """Sends a server what was sent to others, before it is asked."""
        way = self._way(server)
        if not self._begun or way.flow.is_over:
            return
        for _ in range(_RESTORES):
            async with way.lock:
                await self._client.run(way.drain())
                await self._client.run(way.flow.catch_up(timeout))
                loss = way.flow.lost()
            if way.flow.in_sync or way.flow.is_over:
                return
            if loss is None:
                break
            # Without the lock: `full` may wait for a lock of a caller who waits for the feed.
            records = loss.full()
            async with way.lock:
                await self._client.run(way.flow.restore(loss, records))
        raise lacks_records(way)

    async def _beat(self, way: Way) -> float | None:
        """Sends what waits, and a heartbeat if one is due; returns the wait before the next, None: there is none."""
        try:
            async with way.lock:
                if way.server is not self._client._servers.in_use():
                    await self._client.run(way.drain())
                silent = way.flow.heartbeat == 0
                pause = _LONG if silent and way.flow.in_sync else await self._client.run(way.flow.beat())
                loss = way.flow.lost()
            if loss is None:
                return pause
            # Without the lock: `full` may wait for a lock of a caller who waits for the feed.
            records = loss.full()
            async with way.lock:
                return await self._client.run(way.flow.repair(loss, records))
        except Exception as error:
            # Any error: `full` is the caller's, and a closed channel raises one of its own.
            return None if way.flow.is_over else way.flow.beat_failed(error)


def _end(ended: Event, wakes: list[Event]) -> None:
    ended.set()
    for wake in wakes:
        wake.set()


async def _keep_alive(feed: weakref.ref[AsyncFeed], ended: Event, way: Way) -> None:
    """Sends a server its changes and heartbeats, one after the other, until the feed is closed or nobody holds it."""
    # A feed that is used once is gone by then.
    pause: float | None = 0.05
    while pause is not None:
        # A server that fails is not asked again for each change.
        await wait(ended if way.flow.has_failed else way.wake, pause)
        way.wake.clear()
        held = feed()
        if held is None or ended.is_set():
            return
        pause = await held._beat(way)
        del held
