"""Locks, waits and work in the background of the blocking client; `_loop` has the same of the asyncio one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from pumice import v1

Event = threading.Event
Lock = threading.Lock
sleep = time.sleep


def wait(event: Event, seconds: float) -> None:
    """Waits until an event is set, and no longer than some seconds."""
    event.wait(seconds)


class Worker:
    """Work that goes on in the background, in a thread of its own."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        """Begins the work."""
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the work has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Does nothing: a thread ends by itself, when it finds the client or the feed closed."""


def requests(batches: Iterable[v1.Batch]) -> Iterator[v1.SyncRequest]:
    """Yields the requests of a stream of batches."""
    return (v1.SyncRequest(batch=batch) for batch in batches)
