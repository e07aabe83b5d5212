"""Addresses of a client, and which of them is in use; both clients ask it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

_LOG = logging.getLogger("pumice")
# Most by which the rest of an address grows that fails again and again, in times of `return_after`.
_LONGEST_REST = 32


class Server:
    """One address, with its channel."""

    def __init__(self, target: str, channel: Any = None) -> None:
        """Makes a server that has not failed."""
        self.target = target
        self.channel = channel
        self.stubs: dict[str, Any] = {}
        # Epoch of the server when it last heard a feed; 0: it has heard none.
        self.epoch = 0
        self.until = float("-inf")
        self.back = float("-inf")
        self.rest = 0.0


class ServerList:
    """Servers in the order of preference, of which one is in use. It is safe to use from several threads."""

    def __init__(
        self, servers: Sequence[Server], return_after: float = 10.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Puts the first server in use."""
        self.all = list(servers)
        self.closed = False
        # Called when a server other than the first is in use, so that somebody looks for the way back.
        self.left: Callable[[], None] = lambda: None
        self._return_after = return_after
        self._now = now
        self._lock = threading.Lock()
        self._current = self.all[0]
        self._restored = True

    @property
    def several(self) -> bool:
        """Whether there is more than one address."""
        return len(self.all) > 1

    def in_use(self) -> Server:
        """Returns the server that calls go to."""
        with self._lock:
            return self._current

    def next(self, tried: Sequence[Server]) -> Server | None:
        """Returns the server for another attempt: that in use, those that work, the others; None: all were tried."""
        with self._lock:
            left = [server for server in (self._current, *self.all) if server not in tried]
            working = [server for server in left if self._works(server)]
            return next(iter(working or left), None)

    def failed(self, server: Server, reason: object) -> None:
        """Takes note of a failure. Another server that works takes the place of the one in use; else it stays."""
        with self._lock:
            now = self._now()
            if self._works(server):
                again = server is self._current and now - server.back < server.rest
                longest = _LONGEST_REST * self._return_after
                server.rest = min(2 * server.rest, longest) if again else self._return_after
                server.until = now + server.rest
            if server is not self._current:
                return
            working = [other for other in self.all if self._works(other)]
            if not working:
                return
            self._use(working[0], restored=False)
        self._report(server, reason)

    def answered(self, server: Server, *, restored: bool) -> None:
        """Takes note of an answer, before which the server may have been restored.

        The server takes the place of one in use that has failed.
        """
        if not self.several:
            return
        with self._lock:
            before = self._current
            if server is before or self._works(before):
                return
            server.until = self._now()
            self._use(server, restored=restored)
        self._report(before, "the other address failed")

    def is_restored(self, server: Server) -> bool:
        """Whether a server is in use and has what the feeds have sent."""
        with self._lock:
            return not self.several or (self._restored and server is self._current)

    def restored(self, server: Server) -> None:
        """Takes note that a server has what the feeds have sent."""
        with self._lock:
            self._restored = self._restored or server is self._current

    def preferred(self) -> tuple[Server | None, float | None]:
        """Returns a server that is preferred to the one in use and has rested, or the wait for one, or neither."""
        with self._lock:
            before = self.all[: self.all.index(self._current)]
            for server in before:
                if self._works(server):
                    return server, None
            return None, min((server.until - self._now() for server in before), default=None)

    def came_back(self, server: Server) -> None:
        """Puts a server in use again. The first question makes sure that what was sent meanwhile has arrived."""
        with self._lock:
            before = self._current
            if self.all.index(server) >= self.all.index(before):
                return
            server.back = self._now()
            self._use(server, restored=False)
        self._report(before, "it works again")

    def stays_away(self, server: Server) -> None:
        """Lets a server rest on that does not serve yet."""
        with self._lock:
            server.until = self._now() + self._return_after

    def _works(self, server: Server) -> bool:
        return self._now() >= server.until

    def _use(self, server: Server, *, restored: bool) -> None:
        self._current, self._restored = server, restored

    def _report(self, before: Server, reason: object) -> None:
        used = self.in_use()
        _LOG.warning("Pumice is asked at %s, and not at %s any more: %s", used.target, before.target, reason)
        if used is not self.all[0]:
            self.left()
