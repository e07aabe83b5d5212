"""Flows of sessions, with numbered changes, and of feeds, with numbered batches; both clients run them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._flow import Flow, Options, Rpc, attempt, call
from pumice.table import NodeTable

R = TypeVar("R")
_LOG = logging.getLogger("pumice")


class ChangeLog:
    """Changes of a session: `applied` is the number of the last applied one, `pending` are those after it."""

    def __init__(self) -> None:
        """No change yet."""
        self.applied = 0
        self.pending: list[v1.SessionChange] = []

    def confirm(self, applied_through: int, sent: int) -> None:
        """Removes the changes that the service has applied, of the first `sent` ones."""
        done = min(applied_through - self.applied, sent)
        if done >= 0:
            del self.pending[:done]
            self.applied = max(applied_through, self.applied)


class SessionFlow:
    """Changes of a session, and the call that has no response yet."""

    def __init__(self, options: Options, opened: v1.OpenSessionResponse) -> None:
        """Makes the flow of an open session."""
        self.options = options
        self.opened = opened
        self.log = ChangeLog()
        self.effects = v1.SessionEffects()
        self.table = NodeTable()
        self._unanswered: tuple[Rpc[Any, Any], Any, int] | None = None

    def record(self, **change: Any) -> None:
        """Adds one change, which is sent with the next call."""
        self.log.pending.append(v1.SessionChange(**change))

    def send(self, rpc: Rpc[..., R], request: Any) -> Flow[R]:
        """Sends a call with the pending changes."""
        if request.against.WhichOneof("target") is not None:
            raise ValueError("`against` is set: a session sets it itself")
        yield from self._resend_unanswered()
        sent = self._step(request.against.session)
        if _changes_the_session(request):
            self._unanswered = (rpc, request, sent)
        response = yield from self._send(rpc, request, sent)
        if self.options.raise_problems:
            errors.check(response)
        return response

    def flush(self) -> Flow[v1.SessionEffects]:
        """Sends the pending changes."""
        yield from self.send(rpcs.ORDER, v1.OrderRequest())
        return self.effects

    def commit(self, jobs: list[str]) -> Flow[v1.CommitSessionResponse]:
        """Commits the placements that still hold, and ends the session."""
        yield from self._resend_unanswered()
        request = v1.CommitSessionRequest(jobs=jobs)
        self._step(request.session)
        response = yield from call(self.options, rpcs.COMMIT_SESSION, request)
        return response

    def close(self) -> Flow[v1.CloseSessionResponse]:
        """Ends the session without a commit."""
        request = v1.CloseSessionRequest(session=self.opened.session)
        response = yield from call(self.options, rpcs.CLOSE_SESSION, request)
        return response

    def _resend_unanswered(self) -> Flow[None]:
        """Sends the call again that has no response: until it has, the next number is unknown."""
        if self._unanswered is not None:
            rpc, request, sent = self._unanswered
            try:
                yield from self._send(rpc, request, sent)
            except errors.PumiceError as error:
                if not error.decided:
                    raise

    def _step(self, step: v1.SessionRef) -> int:
        step.id = self.opened.session
        step.after = self.log.applied
        step.changes.extend(self.log.pending)
        return len(step.changes)

    def _send(self, rpc: Rpc[..., R], request: Any, sent: int) -> Flow[R]:
        try:
            response = yield from attempt(self.options, rpc, request)
        except errors.PumiceError as error:
            if error.response_metadata is not None and error.response_metadata.HasField("effects"):
                self._confirm(error.response_metadata.effects, sent)
            if error.decided:
                self._unanswered = None
            raise
        self._unanswered = None
        answered: Any = response
        self._confirm(answered.metadata.effects, sent)
        return response

    def _confirm(self, effects: v1.SessionEffects, sent: int) -> None:
        self.effects = effects
        self.log.confirm(effects.applied_through, sent)


def _changes_the_session(request: object) -> bool:
    if isinstance(request, v1.AdmitRequest):
        return request.mode in (v1.ADMIT_MODE_TENTATIVE, v1.ADMIT_MODE_CONFIRM)
    return isinstance(request, v1.PlaceRequest) and request.effect == v1.PLACE_EFFECT_SESSION


class FeedFlow:
    """Numbered batches of a source. After a lost batch the feed sends a full sync."""

    def __init__(
        self,
        options: Options,
        source: str,
        source_epoch: int | None,
        full: Callable[[], v1.Cluster] | None,
        part_records: int,
    ) -> None:
        """Makes the flow of a feed; `full` returns all records for a full sync."""
        if part_records < 1:
            raise ValueError(f"part_records: {part_records} is below 1")
        self.options = options
        self.source = source
        self.source_epoch = time.time_ns() if source_epoch is None else source_epoch
        self.sequence = 0
        self.in_sync = False
        self._full = full
        self._part_records = part_records

    def full_sync(self, cluster: v1.Cluster) -> Flow[v1.BatchOutcome]:
        """Replaces all records of the source."""
        outcome = v1.BatchOutcome()
        parts = list(_parts(cluster, self._part_records))
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            kind = v1.BATCH_KIND_FULL_SYNC_LAST if last else v1.BATCH_KIND_FULL_SYNC_PART
            outcome = yield from self._apply(self._batch(kind=kind, put=part, part=number))
            if outcome.HasField("resync"):
                raise errors.ResyncError(f"{outcome.resync.reason}: {outcome.resync.message}")
        self.in_sync = True
        return outcome

    def delta(self, put: v1.Cluster | None, remove: v1.Removals | None) -> Flow[v1.BatchOutcome]:
        """Sends changes; after a loss, a full sync."""
        if self.in_sync:
            batch = self._batch(kind=v1.BATCH_KIND_DELTA, put=put, remove=remove)
            outcome = yield from self._apply(batch)
            if not outcome.HasField("resync"):
                self.in_sync = True
                return outcome
        outcome = yield from self._everything()
        return outcome

    def open_session(
        self, against: v1.EvaluationRef | None, put: v1.Cluster | None, remove: v1.Removals | None, lease: Any
    ) -> Flow[v1.OpenSessionResponse]:
        """Sends changes and opens a session after them."""
        request = v1.OpenSessionRequest(against=against, lease=lease)
        if not self.in_sync:
            yield from self._everything()
        elif put is not None or remove is not None:
            request.batch.CopyFrom(self._batch(kind=v1.BATCH_KIND_DELTA, put=put, remove=remove))
        self.in_sync = False
        try:
            response = yield from call(self.options, rpcs.OPEN_SESSION, request)
        except errors.PreconditionError as error:
            if error.reason != "RESYNC_NEEDED":
                raise
            self._refuse_fenced(error.outcome)
            yield from self._everything()
            request.ClearField("batch")
            response = yield from call(self.options, rpcs.OPEN_SESSION, request)
        self.in_sync = True
        self._log_refused(response.outcome)
        return response

    def _everything(self) -> Flow[v1.BatchOutcome]:
        if self._full is None:
            raise errors.ResyncError(
                f"source `{self.source}`: a full sync is needed; call full_sync, or give the feed `full`"
            )
        outcome = yield from self.full_sync(self._full())
        return outcome

    def _batch(self, **fields: Any) -> v1.Batch:
        self.sequence += 1
        return v1.Batch(source=self.source, source_epoch=self.source_epoch, sequence=self.sequence, **fields)

    def _apply(self, batch: v1.Batch) -> Flow[v1.BatchOutcome]:
        # While the outcome is unknown, the batch may be lost.
        self.in_sync = False
        response = yield from call(self.options, rpcs.APPLY, v1.ApplyRequest(batch=batch))
        self._refuse_fenced(response.outcome)
        self._log_refused(response.outcome)
        return response.outcome

    def _log_refused(self, outcome: v1.BatchOutcome) -> None:
        """Warns about refused records: the service has an older record of that name, or none."""
        if outcome.refused:
            first = outcome.refused[0]
            _LOG.warning(
                "Pumice refused %d records of source %s, the first one: %s: %s: %s",
                len(outcome.refused),
                self.source,
                first.field,
                first.reason,
                first.message,
            )

    def _refuse_fenced(self, outcome: v1.BatchOutcome | None) -> None:
        if outcome is not None and outcome.resync.reason == "FENCED":
            raise errors.FencedError(outcome.resync.message)


def _parts(cluster: v1.Cluster, most: int) -> Iterator[v1.Cluster]:
    """Splits a cluster into parts of at most `most` records. An empty cluster is one empty part."""
    part, left = v1.Cluster(), most
    for kind in ("nodes", "queues", "jobs", "tasks"):
        records = getattr(cluster, kind)
        for at in range(len(records)):
            if left == 0:
                yield part
                part, left = v1.Cluster(), most
            getattr(part, kind).append(records[at])
            left -= 1
    yield part


def node_table(
    options: Options, table: NodeTable, version: v1.NodeTableVersion | None, session: str
) -> Flow[NodeTable]:
    """Fetches the slots that `table` lacks."""
    while version is None or not table.covers(version):
        from_slot = 0 if version is None else table.next_slot(version)
        request = v1.GetNodeTableRequest(session=session, from_slot=from_slot)
        response = yield from call(options, rpcs.GET_NODE_TABLE, request)
        if version is not None and (response.table.epoch, response.table.generation) != (
            version.epoch,
            version.generation,
        ):
            raise ValueError("the node table has changed since the response: repeat the call")
        table.add(response, from_slot)
        if not response.names:
            break
        version = response.table
    return table


def every(options: Options, rpc: Rpc[Any, Any], request: Any, field: str) -> Flow[list[Any]]:
    """Returns all pages of a listing."""
    records: list[Any] = []
    while True:
        response = yield from call(options, rpc, request)
        records.extend(getattr(response, field))
        if not response.next_page_token:
            return records
        request.page.token = response.next_page_token
