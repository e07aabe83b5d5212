"""Flows of sessions, with numbered changes, and of listings; both clients run them."""

from __future__ import annotations

from typing import Any, TypeVar

from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._flow import Flow, Options, Rpc, attempt, attempt_at, call
from pumice._servers import Server
from pumice.table import NodeTable

R = TypeVar("R")


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

    def __init__(self, options: Options, opened: v1.OpenSessionResponse, server: Server) -> None:
        """Makes the flow of a session that a server has opened. No other server knows it."""
        self.options = options
        self.server = server
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
        errors.check_complete(request, response)
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
        response = yield from self._bound(call(self.options, rpcs.COMMIT_SESSION, request, self.server))
        return response

    def close(self) -> Flow[v1.CloseSessionResponse]:
        """Ends the session without a commit."""
        request = v1.CloseSessionRequest(session=self.opened.session)
        response = yield from self._bound(call(self.options, rpcs.CLOSE_SESSION, request, self.server))
        return response

    def node_table(self) -> Flow[NodeTable]:
        """Fetches the slots that the table of the session lacks."""
        fetch = node_table(self.options, self.table, None, self.opened.session, self.server)
        table = yield from self._bound(fetch)
        return table

    def _bound(self, flow: Flow[R]) -> Flow[R]:
        """Runs a call to the server of the session, which is lost with it if another one is in use."""
        try:
            result = yield from flow
        except (errors.UnavailableError, errors.DeadlineError) as error:
            used = self.options.servers.in_use() if self.options.servers is not None else self.server
            if used is self.server:
                raise
            raise errors.SessionEndedError(
                error.code,
                f"the session is lost with the server at {self.server.target}, and calls go to {used.target} now: "
                f"open another session; the last failure: {error.message}",
                "SESSION_UNREACHABLE",
                {"session": self.opened.session, "server": self.server.target},
                response_metadata=error.response_metadata,
            ) from error
        return result

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
            response = yield from self._bound(attempt(self.options, rpc, request, self.server))
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


def open_session(
    options: Options, request: v1.OpenSessionRequest, at: Server | None = None
) -> Flow[tuple[v1.OpenSessionResponse, Server]]:
    """Opens a session, at a server or at the one in use and others after it; returns which one opened it."""
    opened, server = yield from attempt_at(options, rpcs.OPEN_SESSION, request, at)
    return opened, server


def node_table(
    options: Options, table: NodeTable, version: v1.NodeTableVersion | None, session: str, at: Server | None = None
) -> Flow[NodeTable]:
    """Fetches the slots that `table` lacks."""
    while version is None or not table.covers(version):
        from_slot = 0 if version is None else table.next_slot(version)
        request = v1.GetNodeTableRequest(session=session, from_slot=from_slot)
        response = yield from call(options, rpcs.GET_NODE_TABLE, request, at)
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
