"""Locks, waits and work in the background of the asyncio client; `_threads` has the same of the blocking one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, ClassVar

from pumice import v1

Event = asyncio.Event
Lock = asyncio.Lock
sleep = asyncio.sleep


async def wait(event: Event, seconds: float) -> None:
    """Waits until an event is set, and no longer than some seconds."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


class Worker:
    """Work that goes on in the background, as a task of the event loop."""

    # The event loop itself does not hold its tasks.
    _held: ClassVar[set[asyncio.Task[None]]] = set()

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Begins the work."""
        self._task = asyncio.create_task(work(), name=name)
        self._held.add(self._task)
        self._task.add_done_callback(self._held.discard)

    @property
    def has_ended(self) -> bool:
        """Whether the work has ended."""
        return self._task.done()

    def stop(self) -> None:
        """Ends the work where it waits."""
        self._task.cancel()


async def requests(batches: Iterable[v1.Batch] | AsyncIterable[v1.Batch]) -> AsyncIterator[v1.SyncRequest]:
    """Yields the requests of a stream of batches."""
    if isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield v1.SyncRequest(batch=batch)
    else:
        for batch in batches:
            yield v1.SyncRequest(batch=batch)
