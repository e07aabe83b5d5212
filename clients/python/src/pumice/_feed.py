"""Flow of feeds, with numbered batches and heartbeats; both clients run it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._flow import Flow, Options, call, seconds
from pumice._parts import in_parts
from pumice._servers import Server
from pumice._session import open_session

_LOG = logging.getLogger("pumice")
_LOGGED_RECORDS = 10
# Bytes that a name may have by default (limit `name_bytes`): a namespace, a slash, a name.
_LONGEST_NAME = 253 + 1 + 253
# Reason by which an outcome repeats a record that the feed itself called unreadable.
_UNREADABLE = "UNREADABLE_RECORD"
_STALE_LIMIT = "source_stale_ms"
# A third of the default of that limit.
_DEFAULT_HEARTBEAT = 20.0
_SHORTEST_HEARTBEAT = 0.01
_LONGEST_HEARTBEAT = 1e7


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """Options of a feed, as `Client.feed` describes them. `heartbeat` is in seconds; None: a third of the limit."""

    full: Callable[[], v1.Cluster] | None
    source_epoch: int
    part_records: int
    heartbeat: float | None

    @staticmethod
    def of(
        full: Callable[[], v1.Cluster] | None,
        source_epoch: int | None,
        part_records: int,
        heartbeat: float | str | None,
    ) -> FeedOptions:
        """Fills in defaults and refuses impossible values."""
        if part_records < 1:
            raise ValueError(f"part_records: {part_records} is below 1")
        span = None if heartbeat is None else seconds("heartbeat", heartbeat)
        if span is not None and span < 0:
            raise ValueError(f"heartbeat: {heartbeat!r} is below 0 s")
        return FeedOptions(full, time.time_ns() if source_epoch is None else source_epoch, part_records, span)


class Loss(NamedTuple):
    """Function that returns all records of a feed that has lost a batch, and the number of its owner's calls so far."""

    full: Callable[[], v1.Cluster]
    calls: int


class FeedState:
    """State that the flows of a feed share."""

    def __init__(self) -> None:
        """Makes that of a feed which goes on."""
        self.closed = False
        self.fenced: errors.FencedError | None = None


def changed(put: v1.Cluster | None, remove: v1.Removals | None, unreadable: Sequence[v1.UnreadableRecord]) -> bool:
    """Whether there is anything to send."""
    return put is not None or remove is not None or bool(unreadable)


class FeedFlow:
    """Numbered batches of a source to one server. After a lost batch the feed sends a full sync."""

    def __init__(
        self,
        options: Options,
        source: str,
        own: FeedOptions,
        server: Server | None = None,
        state: FeedState | None = None,
    ) -> None:
        """Makes the flow of a feed to a server; None: the only one."""
        self._state = state or FeedState()
        several = options.servers is not None and options.servers.several
        # Another server is asked sooner; this one gets a full sync later.
        self.options = replace(options, attempts=1) if several else options
        self.server = server or Server(options.target)
        self.source = source
        self.source_epoch = own.source_epoch
        self.heartbeat = own.heartbeat
        self.sequence = 0
        self.in_sync = False
        self._full = own.full
        self._part_records = own.part_records
        self._marked: dict[tuple[int, str], bytes] = {}
        # Time at which the last batch was sent that the service answered, and the epoch of the service then.
        self._heard = 0.0
        self._restarts = 0
        self._interval: tuple[float, int] | None = None
        self._failures = 0
        self._calls = 0
        # Heartbeat without an outcome, which is repeated under its own number.
        self._beat: v1.Batch | None = None

    @property
    def closed(self) -> bool:
        """Whether the feed was closed."""
        return self._state.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        self._state.closed = closed

    @property
    def is_over(self) -> bool:
        """Whether the feed sends nothing more."""
        return self._state.closed or self._state.fenced is not None

    @property
    def can_repair(self) -> bool:
        """Whether the feed can get all records by itself."""
        return self._full is not None

    def lose(self) -> None:
        """Takes note that a change of the owner is lost: a full sync is needed."""
        self._calls += 1
        self.in_sync = False

    def full_sync(self, records: v1.Cluster, marks: Sequence[v1.UnreadableRecord] = ()) -> Flow[v1.BatchOutcome]:
        """Replaces all records of the source."""
        self._begin()
        outcome = yield from self._replace(records, marks)
        return outcome

    def _replace(self, records: v1.Cluster, marks: Sequence[v1.UnreadableRecord]) -> Flow[v1.BatchOutcome]:
        self._marked.clear()
        outcome = v1.BatchOutcome()
        parts = list(in_parts(records, self._sendable(marks), self._part_records))
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            kind = v1.BATCH_KIND_FULL_SYNC_LAST if last else v1.BATCH_KIND_FULL_SYNC_PART
            batch = self._batch(kind=kind, put=part.put, part=number, unreadable=part.unreadable)
            outcome = yield from self._apply(batch)
            if outcome.HasField("resync"):
                raise errors.ResyncError(f"{outcome.resync.reason}: {outcome.resync.message}")
        self.in_sync = True
        return outcome

    def delta(
        self, put: v1.Cluster | None, remove: v1.Removals | None, unreadable: Sequence[v1.UnreadableRecord]
    ) -> Flow[v1.BatchOutcome]:
        """Sends changes; after a loss, a full sync."""
        self._begin()
        if self.in_sync:
            outcome = yield from self._apply(self._delta(put, remove, unreadable))
            if not outcome.HasField("resync"):
                self.in_sync = True
                return outcome
        outcome = yield from self._everything(unreadable)
        return outcome

    def open_session(
        self,
        against: v1.EvaluationRef | None,
        put: v1.Cluster | None,
        remove: v1.Removals | None,
        unreadable: Sequence[v1.UnreadableRecord],
        lease: Any,
    ) -> Flow[tuple[v1.OpenSessionResponse, Server]]:
        """Sends changes and opens a session after them."""
        self._begin()
        request = v1.OpenSessionRequest(against=against, lease=lease)
        if not self.in_sync:
            yield from self._everything(unreadable)
        elif changed(put, remove, unreadable):
            request.batch.CopyFrom(self._delta(put, remove, unreadable))
        self.in_sync = False
        sent = time.monotonic()
        try:
            response, server = yield from open_session(self.options, request, self.server)
        except errors.PreconditionError as error:
            if error.reason != "RESYNC_NEEDED":
                raise
            self._refuse_fenced(error.outcome)
            yield from self._everything(unreadable)
            request.ClearField("batch")
            response, server = yield from open_session(self.options, request, self.server)
        self.in_sync = True
        if response.HasField("outcome"):
            self._answered(sent, response.outcome)
        return response, server

    def catch_up(self, timeout: float) -> Flow[None]:
        """Finds out with an empty batch whether the server has what was sent."""
        if self.in_sync and not self.is_over:
            yield from self._empty_batch(replace(self.options, timeout=timeout))

    def beat(self) -> Flow[float | None]:
        """Sends a heartbeat if the feed has been silent for an interval.

        Returns the wait before the next one; None: there is none.
        """
        wait = yield from self._guarded(self._send_beat())
        return wait

    def lost(self) -> Loss | None:
        """Returns how to repair a loss: the function that returns all records; None: nothing is lost, or it cannot."""
        if self.in_sync or self._full is None or self.is_over:
            return None
        return Loss(self._full, self._calls)

    def repair(self, loss: Loss, records: v1.Cluster) -> Flow[float | None]:
        """Sends all records after a loss, unless the owner has called meanwhile and they may be out of date."""
        wait = yield from self._guarded(self._repair(loss, records))
        return wait

    def restore(self, loss: Loss, records: v1.Cluster) -> Flow[None]:
        """Sends all records after a loss, as `repair` does, and raises what goes wrong."""
        yield from self._repair(loss, records)

    @property
    def has_failed(self) -> bool:
        """Whether the last heartbeat failed."""
        return self._failures > 0

    def _guarded(self, beat: Flow[float]) -> Flow[float | None]:
        """Runs a step of the heartbeats, whose failures are only logged."""
        if self.is_over:
            beat.close()
            return None
        try:
            wait = yield from beat
        except errors.FencedError:
            return None
        except errors.PumiceError as error:
            return self.beat_failed(error)
        self._failures = 0
        return wait

    def beat_failed(self, error: Exception) -> float:
        """Returns the wait after a failed heartbeat, which grows up to the interval; warns once per outage."""
        if self._failures == 0:
            _LOG.warning("Pumice got no heartbeat of source %s: %s", self.source, error)
        self._failures += 1
        interval = _DEFAULT_HEARTBEAT if self._interval is None else self._interval[0]
        first = max(seconds("max_backoff", self.options.max_backoff), _SHORTEST_HEARTBEAT)
        return min(first * 2.0 ** min(self._failures - 1, 8), interval)

    def _heartbeat_interval(self) -> Flow[float]:
        """Returns the silence before a heartbeat: a third of the limit of the service, which a restart may change."""
        if self.heartbeat is not None:
            self._interval = (max(self.heartbeat, _SHORTEST_HEARTBEAT), self._restarts)
        elif self._interval is None or self._interval[1] != self._restarts:
            try:
                info = yield from call(self.options, rpcs.GET_SERVER_INFO, v1.GetServerInfoRequest(), self.server)
            except (errors.UnavailableError, errors.DeadlineError):
                raise
            except errors.PumiceError:
                # A service that does not give its limits.
                self._interval = (_DEFAULT_HEARTBEAT, self._restarts)
            else:
                limits = {limit.name: limit.value / 3000 for limit in info.limits}
                third = limits.get(_STALE_LIMIT, _DEFAULT_HEARTBEAT)
                interval = min(max(third, _SHORTEST_HEARTBEAT), _LONGEST_HEARTBEAT)
                self._interval = (interval, info.revision.epoch)
        return self._interval[0]

    def _send_beat(self) -> Flow[float]:
        """Sends an empty delta, or repeats one without an outcome."""
        interval = yield from self._heartbeat_interval()
        silence = time.monotonic() - self._heard
        if not self.in_sync:
            if self.options.servers is not None and self.options.servers.several:
                # Before the records are gathered for it: whether the server is there.
                yield from call(self.options, rpcs.WHO_AM_I, v1.WhoAmIRequest(), self.server)
            return interval
        if silence < interval:
            return interval - silence
        yield from self._empty_batch(self.options)
        return interval

    def _empty_batch(self, options: Options) -> Flow[None]:
        """Sends an empty delta, or repeats one without an outcome. Nothing is lost with it."""
        self._beat = self._beat or self._batch(kind=v1.BATCH_KIND_DELTA)
        sent = time.monotonic()
        response = yield from call(options, rpcs.APPLY, v1.ApplyRequest(batch=self._beat), self.server)
        self._beat = None
        self._answered(sent, response.outcome)
        self.in_sync = not response.outcome.HasField("resync")

    def _repair(self, loss: Loss, records: v1.Cluster) -> Flow[float]:
        interval = yield from self._heartbeat_interval()
        if not self.in_sync and self._calls == loss.calls:
            yield from self._replace(records, ())
        return interval

    def _everything(self, marks: Sequence[v1.UnreadableRecord]) -> Flow[v1.BatchOutcome]:
        if self._full is None:
            raise errors.ResyncError(
                f"source `{self.source}`: a full sync is needed; call full_sync, or give the feed `full`"
            )
        outcome = yield from self._replace(self._full(), marks)
        return outcome

    def _delta(
        self, put: v1.Cluster | None, remove: v1.Removals | None, unreadable: Sequence[v1.UnreadableRecord]
    ) -> v1.Batch:
        marks = self._sendable(unreadable)
        return self._batch(kind=v1.BATCH_KIND_DELTA, put=put, remove=remove, unreadable=marks)

    def _batch(self, **fields: Any) -> v1.Batch:
        # A heartbeat that was lost leaves a gap now, for which the service asks for a full sync.
        self._beat = None
        self.sequence += 1
        return v1.Batch(
            source=self.source,
            source_epoch=self.source_epoch,
            sequence=self.sequence,
            source_kind=v1.SOURCE_KIND_LIVE,
            **fields,
        )

    def _apply(self, batch: v1.Batch) -> Flow[v1.BatchOutcome]:
        # While the outcome is unknown, the batch may be lost.
        self.in_sync = False
        sent = time.monotonic()
        response = yield from call(self.options, rpcs.APPLY, v1.ApplyRequest(batch=batch), self.server)
        self._answered(sent, response.outcome)
        return response.outcome

    def _answered(self, sent: float, outcome: v1.BatchOutcome) -> None:
        """Takes note of the outcome of a batch."""
        self._heard, self._restarts = sent, outcome.revision.epoch
        self.server.epoch = self._restarts
        self._refuse_fenced(outcome)
        self._log_refused(outcome)

    def _sendable(self, marks: Sequence[v1.UnreadableRecord]) -> list[v1.UnreadableRecord]:
        """Returns the marks that the service takes, and warns about new ones."""
        sendable = []
        for mark in marks:
            kind = v1.RecordKind.Name(mark.kind).removeprefix("RECORD_KIND_").lower()
            named = (self.source, kind, mark.name, f"{mark.field}: {mark.message}" if mark.field else mark.message)
            if mark.kind == v1.RECORD_KIND_UNSPECIFIED or not 0 < len(mark.name.encode()) <= _LONGEST_NAME:
                # The service would refuse the whole batch.
                _LOG.warning(
                    "source %s: a %s `%s` cannot be read and is left out, as a record has no such name: %s", *named
                )
                continue
            sendable.append(mark)
            key, text = (mark.kind, mark.name), mark.SerializeToString(deterministic=True)
            if self._marked.get(key) != text:
                self._marked[key] = text
                _LOG.warning("source %s: %s `%s` cannot be read; its last good record stays in force: %s", *named)
        return sendable

    def _log_refused(self, outcome: v1.BatchOutcome) -> None:
        """Warns about refused records: the service has an older record of that name, or none."""
        refused = [problem for problem in outcome.refused if problem.reason != _UNREADABLE]
        for problem in refused[:_LOGGED_RECORDS]:
            _LOG.warning(
                "Pumice refused a record of source %s: %s: %s: %s",
                self.source,
                problem.field,
                problem.reason,
                problem.message,
            )
        if len(refused) > _LOGGED_RECORDS:
            _LOG.warning("Pumice refused %d more records of source %s", len(refused) - _LOGGED_RECORDS, self.source)

    def _refuse_fenced(self, outcome: v1.BatchOutcome | None) -> None:
        if outcome is not None and outcome.resync.reason == "FENCED":
            self._state.fenced = errors.FencedError(outcome.resync.message)
            raise self._state.fenced

    def _begin(self) -> None:
        """Begins a call of the owner."""
        self._calls += 1
        if self.closed:
            raise errors.FeedClosedError(self.source)
        if self._state.fenced is not None:
            raise errors.FencedError(self._state.fenced.message)
