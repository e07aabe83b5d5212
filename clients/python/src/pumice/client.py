"""Client whose calls block."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import grpc

from pumice import _rpcs as rpcs
from pumice import _session as flows
from pumice import errors, v1
from pumice._connect import DEFAULT_TARGET, resolve
from pumice._feed import FeedFlow, FeedOptions, Records
from pumice._flow import Flow, Options, Rpc, Sleep, call
from pumice.build import duration
from pumice.table import NodeTable

__all__ = ["Client", "Feed", "Session", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


class _Method(Generic[P, R]):
    """A call as a method: its parameters are the fields of the request."""

    def __init__(self, rpc: Rpc[P, R]) -> None:
        self.rpc = rpc

    def __get__(self, owner: Client, _type: object = None) -> Callable[P, R]:
        def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return owner.run(call(owner.options, self.rpc, self.rpc.request(*args, **kwargs)))

        return method


class Client:
    """Client of the three services of one server. It is safe to use from several threads."""

    filter = _Method(rpcs.FILTER)
    """Returns the nodes on which tasks may run."""
    score = _Method(rpcs.SCORE)
    """Returns the scores of nodes for tasks."""
    place = _Method(rpcs.PLACE)
    """Places the tasks of one job."""
    admit = _Method(rpcs.ADMIT)
    """Decides whether jobs may start and tasks may be allocated."""
    order = _Method(rpcs.ORDER)
    """Returns the order in which queues and jobs are served."""
    select_victims = _Method(rpcs.SELECT_VICTIMS)
    """Selects tasks to evict for a preemptor."""
    apply = _Method(rpcs.APPLY)
    """Applies one batch; a `feed` numbers batches itself."""
    get_node_table = _Method(rpcs.GET_NODE_TABLE)
    """Returns a part of the names of slots; `node_table` returns all."""
    get_server_info = _Method(rpcs.GET_SERVER_INFO)
    """Returns the server's version, plugins, limits, sources and policies."""
    who_am_i = _Method(rpcs.WHO_AM_I)
    """Returns who the server takes the caller for."""
    list_nodes = _Method(rpcs.LIST_NODES)
    """Returns one page of nodes; `nodes` returns all."""
    list_queues = _Method(rpcs.LIST_QUEUES)
    """Returns one page of queues; `queues` returns all."""
    list_jobs = _Method(rpcs.LIST_JOBS)
    """Returns one page of jobs; `jobs` returns all."""
    list_tasks = _Method(rpcs.LIST_TASKS)
    """Returns one page of tasks; `tasks` returns all."""
    list_namespaces = _Method(rpcs.LIST_NAMESPACES)
    """Returns one page of namespaces; `namespaces` returns all."""
    list_sessions = _Method(rpcs.LIST_SESSIONS)
    """Returns one page of the open sessions."""
    list_reservations = _Method(rpcs.LIST_RESERVATIONS)
    """Returns one page of the admission ledger."""
    forget_source = _Method(rpcs.FORGET_SOURCE)
    forget_resource = _Method(rpcs.FORGET_RESOURCE)
    """Removes a source and its records. It is never repeated."""
    release_reservation = _Method(rpcs.RELEASE_RESERVATION)
    """Ends a reservation."""
    release_assumptions = _Method(rpcs.RELEASE_ASSUMPTIONS)
    """Ends assumed placements. It is repeated only for those of one session."""
    reload_policy = _Method(rpcs.RELOAD_POLICY)
    """Puts a document in force. A rejected one is an InvalidError with a report. Only a dry run is repeated."""
    rollback_policy = _Method(rpcs.ROLLBACK_POLICY)
    """Puts an earlier version in force again. Only a dry run is repeated."""
    delete_policy = _Method(rpcs.DELETE_POLICY)
    """Deletes a policy. It is never repeated."""
    get_policy = _Method(rpcs.GET_POLICY)
    """Returns one version of a policy."""
    list_policies = _Method(rpcs.LIST_POLICIES)
    """Lists versions, newest first."""

    def __init__(self, channel: grpc.Channel, options: Options | None = None) -> None:
        """A client on a channel of your own; `connect` makes one."""
        self.options = options or Options()
        self._channel = channel
        self._stubs: dict[str, Any] = {}
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._table = NodeTable()
        self._reading = threading.Lock()

    def with_options(self, **changed: Any) -> Client:
        """The same connection with other `Options`: `client.with_options(timeout=0.2).score(...)`."""
        other = Client(self._channel, replace(self.options, **changed))
        other._stubs, other._feeds = self._stubs, self._feeds
        return other

    def open_session(
        self,
        against: v1.EvaluationRef | None = None,
        *,
        batch: v1.Batch | None = None,
        lease: float | str | None = None,
    ) -> Session:
        """Opens a session, which pins cluster state and policy. `lease` is in seconds, or a text such as "30s"."""
        span = None if lease is None else duration(lease)
        request = v1.OpenSessionRequest(against=against, batch=batch, lease=span)
        return Session(self, self.run(call(self.options, rpcs.OPEN_SESSION, request)))

    def feed(
        self,
        source: str,
        *,
        full: Callable[[], Records] | None = None,
        source_epoch: int | None = None,
        part_records: int = 20_000,
        heartbeat: float | str | None = None,
    ) -> Feed:
        """Makes a feed, which writes the records of a source. For a full sync it calls `full` for all records.

        `source_epoch` defaults to the time in nanoseconds: a process that starts later fences an older one. While the
        feed has nothing to send, it sends an empty batch after `heartbeat` of silence, so that its source does not
        become stale: seconds or a text such as "5s", 0: never, None: a third of the service's `source_stale_ms`. A
        heartbeat that finds the service restarted calls `full` from its own thread.
        """
        own = FeedOptions.of(full, source_epoch, part_records, heartbeat)
        feed = Feed(self, FeedFlow(self.options, source, own))
        self._feeds.add(feed)
        return feed

    def sync(self, batches: Iterable[v1.Batch]) -> Iterator[v1.BatchOutcome]:
        """Applies a stream of batches and yields their outcomes. It has no deadline and is never repeated."""
        stream = self._channel.stream_stream(
            rpcs.SYNC.path,
            request_serializer=v1.SyncRequest.SerializeToString,
            response_deserializer=v1.SyncResponse.FromString,
        )
        requests = (v1.SyncRequest(batch=batch) for batch in batches)
        try:
            for response in stream(requests, metadata=self.options.metadata):
                yield response.outcome
        except grpc.RpcError as raw:
            raise errors.read(raw, self.options.target) from raw

    def node_table(self, version: v1.NodeTableVersion | None = None) -> NodeTable:
        """Returns the names of slots, of a version (`response.metadata.node_table`); None: the latest."""
        with self._reading:
            return self.run(flows.node_table(self.options, self._table, version, ""))

    def nodes(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.NodeStatus]:
        """Returns all nodes, or those named, with their usage."""
        request = v1.ListNodesRequest(against=against, names=names)
        return self.run(flows.every(self.options, rpcs.LIST_NODES, request, "nodes"))

    def queues(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.QueueStatus]:
        """Returns all queues, or those named, with their accounts."""
        request = v1.ListQueuesRequest(against=against, names=names)
        return self.run(flows.every(self.options, rpcs.LIST_QUEUES, request, "queues"))

    def jobs(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.JobStatus]:
        """Returns all jobs, or those named, with their accounts."""
        request = v1.ListJobsRequest(against=against, names=names)
        return self.run(flows.every(self.options, rpcs.LIST_JOBS, request, "jobs"))

    def tasks(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.StoredTask]:
        """Returns all tasks, or those named."""
        request = v1.ListTasksRequest(against=against, names=names)
        return self.run(flows.every(self.options, rpcs.LIST_TASKS, request, "tasks"))

    def namespaces(
        self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None
    ) -> list[v1.NamespaceStatus]:
        """Returns all namespaces, or those named."""
        request = v1.ListNamespacesRequest(against=against, names=names)
        return self.run(flows.every(self.options, rpcs.LIST_NAMESPACES, request, "namespaces"))

    def run(self, flow: Flow[R]) -> R:
        """Runs the steps of a call."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    response = self._stub(step.rpc)(
                        step.request,
                        timeout=step.timeout,
                        metadata=step.options.metadata,
                        wait_for_ready=step.options.wait_for_ready,
                    )
                except grpc.RpcError as raw:
                    step = flow.throw(raw)
                else:
                    step = flow.send(response)
        except StopIteration as done:
            result: R = done.value
            return result

    def _stub(self, rpc: Rpc[Any, Any]) -> Any:
        stub = self._stubs.get(rpc.path)
        if stub is None:
            request: Any = rpc.request
            stub = self._channel.unary_unary(
                rpc.path,
                request_serializer=request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
            self._stubs[rpc.path] = stub
        return stub

    def close(self) -> None:
        """Closes the connection, and the feeds of the client."""
        for feed in list(self._feeds):
            feed.close()
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    target: str = DEFAULT_TARGET,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    token_file: str | Path | None = None,
    options: Options | None = None,
    channel_options: Sequence[tuple[str, Any]] = (),
) -> Client:
    """Makes a client of `HOST:PORT`, `HOST` (port 7461), `https://…`, `unix:PATH` or the path of a socket.

    The first call connects. `token_file` has a bearer token, sent over TLS or to this machine; each call reads it.
    """
    end = resolve(target, credentials, channel_options, token_file)
    options = replace(options or Options(), target=target)
    if end.credentials is None:
        return Client(grpc.insecure_channel(end.target, options=end.options), options)
    return Client(grpc.secure_channel(end.target, end.credentials, options=end.options), options)


class _SessionCall(Generic[P, R]):
    """A decision call of a session, which sets `against`."""

    def __init__(self, rpc: Rpc[P, R]) -> None:
        self.rpc = rpc

    def __get__(self, owner: Session, _type: object = None) -> Callable[P, R]:
        def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return owner._run(owner._flow.send(self.rpc, self.rpc.request(*args, **kwargs)))

        return method


class Session:
    """One scheduling cycle. Changes are sent with the next call. Close the session, or use `with`."""

    filter = _SessionCall(rpcs.FILTER)
    score = _SessionCall(rpcs.SCORE)
    place = _SessionCall(rpcs.PLACE)
    admit = _SessionCall(rpcs.ADMIT)
    order = _SessionCall(rpcs.ORDER)
    select_victims = _SessionCall(rpcs.SELECT_VICTIMS)
    list_nodes = _SessionCall(rpcs.LIST_NODES)
    list_queues = _SessionCall(rpcs.LIST_QUEUES)
    list_jobs = _SessionCall(rpcs.LIST_JOBS)
    list_tasks = _SessionCall(rpcs.LIST_TASKS)
    list_namespaces = _SessionCall(rpcs.LIST_NAMESPACES)

    def __init__(self, client: Client, opened: v1.OpenSessionResponse) -> None:
        """`Client.open_session` makes one."""
        self._client = client
        self._flow = flows.SessionFlow(client.options, opened)
        self._lock = threading.Lock()
        self.opened = opened

    @property
    def effects(self) -> v1.SessionEffects:
        """Effects of the changes sent with the last call, and the earlier results that they made stale."""
        return self._flow.effects

    def allocate(self, task: str, node: str, card: str = "") -> None:
        """Gives a task idle resources of a node."""
        self._flow.record(allocate=v1.TaskPlacement(task=task, node=node, card=card))

    def pipeline(self, task: str, node: str, card: str = "") -> None:
        """Lets a task wait for resources that are being released on a node."""
        self._flow.record(pipeline=v1.TaskPlacement(task=task, node=node, card=card))

    def evict(self, task: str) -> None:
        """Evicts a running or bound task: its resources become releasing."""
        self._flow.record(evict=task)

    def unallocate(self, task: str) -> None:
        """Reverts allocate."""
        self._flow.record(unallocate=task)

    def unpipeline(self, task: str) -> None:
        """Reverts pipeline."""
        self._flow.record(unpipeline=task)

    def unevict(self, task: str) -> None:
        """Reverts evict."""
        self._flow.record(unevict=task)

    def bind_failed(self, task: str) -> None:
        """Makes an allocated task pending again, because its bind failed."""
        self._flow.record(bind_failed=task)

    def job_enqueued(self, job: str) -> None:
        """Keeps the tentative permit of a job."""
        self._flow.record(job_enqueued=job)

    def savepoint(self, name: str) -> None:
        """Sets a savepoint."""
        self._flow.record(savepoint=name)

    def rollback_to(self, name: str) -> None:
        """Reverts all changes after a savepoint."""
        self._flow.record(rollback_to=name)

    def flush(self) -> v1.SessionEffects:
        """Sends the pending changes."""
        return self._run(self._flow.flush())

    def node_table(self) -> NodeTable:
        """Returns the names of the slots in this session's responses."""
        return self._run(flows.node_table(self._client.options, self._flow.table, None, self.opened.session))

    def commit(self, jobs: Iterable[str] = ()) -> v1.CommitSessionResponse:
        """Commits the placements that still hold, and ends the session."""
        return self._run(self._flow.commit(list(jobs)))

    def close(self) -> v1.CloseSessionResponse:
        """Ends the session without a commit; the scheduler binds on its own. Closing twice is allowed."""
        return self._run(self._flow.close())

    def _run(self, flow: Flow[R]) -> R:
        with self._lock:
            return self._client.run(flow)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # A session that cannot be closed ends with its lease; an error inside the block must not be hidden by this one.
        with suppress(errors.PumiceError):
            self.close()


class Feed:
    """A source of records. Its batches are numbered; after a loss the feed sends a full sync.

    The service refuses a bad record and applies the rest; the last good record of that name stays in force. `refused`
    of the outcome names the refused records, and the logger "pumice" gets a warning for each. Records that the caller
    cannot read are `unreadable`, which `kube.cluster` collects: pass its whole result as the records.

    From the first call until `close`, or until nobody holds the feed, it sends heartbeats while it is idle.
    """

    def __init__(self, client: Client, flow: FeedFlow) -> None:
        """`Client.feed` makes one."""
        self._client = client
        self._flow = flow
        self._lock = threading.Lock()
        self._beating = False
        self._ended = threading.Event()
        weakref.finalize(self, self._ended.set)

    @property
    def position(self) -> v1.SourcePosition:
        """Number of the last batch; a request can wait for it."""
        flow = self._flow
        return v1.SourcePosition(source=flow.source, source_epoch=flow.source_epoch, sequence=flow.sequence)

    def full_sync(self, records: Records, *, unreadable: Iterable[v1.UnreadableRecord] = ()) -> v1.BatchOutcome:
        """Replaces all records of the source. Those that are unreadable stay, if the service has a good one."""
        return self._run(self._flow.full_sync(records, unreadable))

    def delta(
        self,
        put: Records | None = None,
        remove: v1.Removals | None = None,
        *,
        unreadable: Iterable[v1.UnreadableRecord] = (),
    ) -> v1.BatchOutcome:
        """Sends changes. After a loss it sends a full sync with the records of `full`; without `full`: ResyncError."""
        return self._run(self._flow.delta(put, remove, unreadable))

    def open_session(
        self,
        against: v1.EvaluationRef | None = None,
        *,
        put: Records | None = None,
        remove: v1.Removals | None = None,
        unreadable: Iterable[v1.UnreadableRecord] = (),
        lease: float | str | None = None,
    ) -> Session:
        """Sends changes and opens a session after them, in one call."""
        span = None if lease is None else duration(lease)
        return Session(self._client, self._run(self._flow.open_session(against, put, remove, unreadable, span)))

    def close(self) -> None:
        """Ends the feed: it sends no more batches, and its source becomes stale. Closing twice is allowed.

        A heartbeat that is under way may still arrive.
        """
        self._flow.closed = True
        self._ended.set()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[R]) -> R:
        with self._lock:
            if not self._beating and self._flow.heartbeat != 0 and not self._ended.is_set():
                self._beating = True
                arguments = (weakref.ref(self), self._ended)
                name = f"pumice-feed-{self._flow.source}"
                threading.Thread(target=_keep_alive, args=arguments, name=name, daemon=True).start()
            return self._client.run(flow)

    def _beat(self) -> float | None:
        """Sends a heartbeat if one is due; returns the wait before the next, None: there is none."""
        try:
            with self._lock:
                wait = self._client.run(self._flow.beat())
                loss = self._flow.lost()
            if loss is None:
                return wait
            # Without the lock: `full` may wait for a lock of a caller who waits for the feed.
            records = loss.full()
            with self._lock:
                return self._client.run(self._flow.repair(loss, records))
        except Exception as error:
            # Any error: `full` is the caller's, and a closed channel raises one of its own.
            return self._flow.beat_failed(error)


def _keep_alive(feed: weakref.ref[Feed], ended: threading.Event) -> None:
    """Sends the heartbeats of a feed, one after the other, until it is closed or nobody holds it."""
    # A feed that is used once is gone by then.
    wait: float | None = 0.05
    while wait is not None and not ended.wait(wait):
        held = feed()
        if held is None:
            return
        wait = held._beat()
        del held
