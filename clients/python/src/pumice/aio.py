"""The client for asyncio: the same surface as `pumice.client`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import grpc
import grpc.aio

from pumice import _rpcs as rpcs
from pumice import _session as flows
from pumice import errors, v1
from pumice._connect import DEFAULT_TARGET, resolve
from pumice._flow import Flow, Options, Rpc, Sleep, call
from pumice.build import duration
from pumice.table import NodeTable

__all__ = ["AsyncClient", "AsyncFeed", "AsyncSession", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


class _Method(Generic[P, R]):
    """A call as a method: its parameters are the fields of the request."""

    def __init__(self, rpc: Rpc[P, R]) -> None:
        self.rpc = rpc

    def __get__(self, owner: AsyncClient, _type: object = None) -> Callable[P, Coroutine[Any, Any, R]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return await owner.run(call(owner.options, self.rpc, self.rpc.request(*args, **kwargs)))

        return method


class AsyncClient:
    """The three services of one server. Use it from one event loop."""

    filter = _Method(rpcs.FILTER)
    """Where may these tasks run?"""
    score = _Method(rpcs.SCORE)
    """Where should they run?"""
    place = _Method(rpcs.PLACE)
    """Places a whole job."""
    admit = _Method(rpcs.ADMIT)
    """May these jobs start, these tasks be allocated?"""
    order = _Method(rpcs.ORDER)
    """Who is next?"""
    select_victims = _Method(rpcs.SELECT_VICTIMS)
    """Who gives way?"""
    apply = _Method(rpcs.APPLY)
    """Takes in one batch; `feed` numbers batches for you."""
    get_node_table = _Method(rpcs.GET_NODE_TABLE)
    """One stretch of the names of slots; `node_table` reads all."""
    get_server_info = _Method(rpcs.GET_SERVER_INFO)
    """What this server is and allows."""
    list_nodes = _Method(rpcs.LIST_NODES)
    """One page of nodes; `nodes` reads all."""
    list_queues = _Method(rpcs.LIST_QUEUES)
    """One page of queues; `queues` reads all."""
    list_jobs = _Method(rpcs.LIST_JOBS)
    """One page of jobs; `jobs` reads all."""
    list_tasks = _Method(rpcs.LIST_TASKS)
    """One page of tasks; `tasks` reads all."""
    list_sessions = _Method(rpcs.LIST_SESSIONS)
    """One page of the open sessions."""
    list_reservations = _Method(rpcs.LIST_RESERVATIONS)
    """One page of the admission ledger."""
    release_reservation = _Method(rpcs.RELEASE_RESERVATION)
    """Takes a reservation back."""
    release_assumptions = _Method(rpcs.RELEASE_ASSUMPTIONS)
    """Ends assumptions whose binds failed. Repeated only for those of one session."""
    reload_policy = _Method(rpcs.RELOAD_POLICY)
    """Puts a document in force; refused: InvalidError with a report. Repeated only as a dry run."""
    rollback_policy = _Method(rpcs.ROLLBACK_POLICY)
    """Puts an earlier version in force again. Repeated only as a dry run."""
    get_policy = _Method(rpcs.GET_POLICY)
    """Reads a version."""
    list_policies = _Method(rpcs.LIST_POLICIES)
    """Lists versions, newest first."""

    def __init__(self, channel: grpc.aio.Channel, options: Options | None = None) -> None:
        """A client on a channel of your own; `connect` makes one."""
        self.options = options or Options()
        self._channel = channel
        self._stubs: dict[str, Any] = {}
        self._table = NodeTable()
        self._reading = asyncio.Lock()

    def with_options(self, **changed: Any) -> AsyncClient:
        """The same connection with other `Options`: `client.with_options(timeout=0.2).score(...)`."""
        other = AsyncClient(self._channel, replace(self.options, **changed))
        other._stubs = self._stubs
        return other

    async def open_session(
        self, against: v1.EvaluationRef | None = None, *, batch: v1.Batch | None = None, lease: float | None = None
    ) -> AsyncSession:
        """Begins a scheduling cycle: state and policy stay as they are now. `lease` is in seconds."""
        span = None if lease is None else duration(lease)
        request = v1.OpenSessionRequest(against=against, batch=batch, lease=span)
        return AsyncSession(self, await self.run(call(self.options, rpcs.OPEN_SESSION, request)))

    def feed(
        self,
        source: str,
        *,
        full: Callable[[], v1.Cluster] | None = None,
        source_epoch: int | None = None,
        part_records: int = 20_000,
    ) -> AsyncFeed:
        """Writes the records of a source. `full` is asked for all of them when the service has lost some.

        Without `source_epoch` the time in nanoseconds: a process that starts later fences an older one.
        """
        return AsyncFeed(self, flows.FeedFlow(self.options, source, source_epoch, full, part_records))

    async def sync(self, batches: Iterable[v1.Batch] | AsyncIterable[v1.Batch]) -> AsyncIterator[v1.BatchOutcome]:
        """Takes in a stream of batches, and answers each. It has no deadline and is never repeated."""
        stream = self._channel.stream_stream(
            rpcs.SYNC.path,
            request_serializer=v1.SyncRequest.SerializeToString,
            response_deserializer=v1.SyncResponse.FromString,
        )
        requests = _requests(batches)
        try:
            async for response in stream(requests, metadata=self.options.metadata):
                yield response.outcome
        except grpc.RpcError as raw:
            raise errors.read(raw) from raw

    async def node_table(self, version: v1.NodeTableVersion | None = None) -> NodeTable:
        """The names of slots, as far as the stamp of an answer (`stamp.node_table`) goes; None: the newest."""
        async with self._reading:
            return await self.run(flows.node_table(self.options, self._table, version, ""))

    async def nodes(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.NodeStatus]:
        """All nodes, or those named, with their usage."""
        request = v1.ListNodesRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_NODES, request, "nodes"))

    async def queues(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.QueueStatus]:
        """All queues, or those named, with their accounts."""
        request = v1.ListQueuesRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_QUEUES, request, "queues"))

    async def jobs(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.JobStatus]:
        """All jobs, or those named, with their accounts."""
        request = v1.ListJobsRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_JOBS, request, "jobs"))

    async def tasks(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.StoredTask]:
        """All tasks, or those named."""
        request = v1.ListTasksRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_TASKS, request, "tasks"))

    async def run(self, flow: Flow[R]) -> R:
        """Goes through the steps of a call."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    response = await self._stub(step.rpc)(
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

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()


async def _requests(
    batches: Iterable[v1.Batch] | AsyncIterable[v1.Batch],
) -> AsyncIterator[v1.SyncRequest]:
    if isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield v1.SyncRequest(batch=batch)
    else:
        for batch in batches:
            yield v1.SyncRequest(batch=batch)


def connect(
    target: str = DEFAULT_TARGET,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    options: Options | None = None,
    channel_options: Sequence[tuple[str, Any]] = (),
) -> AsyncClient:
    """Connects to `HOST:PORT`, `https://…`, `unix:PATH` or the path of a socket; the first call dials."""
    end = resolve(target, credentials, channel_options)
    if end.credentials is None:
        return AsyncClient(grpc.aio.insecure_channel(end.target, options=end.options), options)
    return AsyncClient(grpc.aio.secure_channel(end.target, end.credentials, options=end.options), options)


class _Question(Generic[P, R]):
    """A question of a session: its ground is the session."""

    def __init__(self, rpc: Rpc[P, R]) -> None:
        self.rpc = rpc

    def __get__(self, owner: AsyncSession, _type: object = None) -> Callable[P, Coroutine[Any, Any, R]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return await owner._run(owner._flow.ask(self.rpc, self.rpc.request(*args, **kwargs)))

        return method


class AsyncSession:
    """One scheduling cycle. Changes are noted, and ride on the next question; close it, or use `async with`."""

    filter = _Question(rpcs.FILTER)
    score = _Question(rpcs.SCORE)
    place = _Question(rpcs.PLACE)
    admit = _Question(rpcs.ADMIT)
    order = _Question(rpcs.ORDER)
    select_victims = _Question(rpcs.SELECT_VICTIMS)
    list_nodes = _Question(rpcs.LIST_NODES)
    list_queues = _Question(rpcs.LIST_QUEUES)
    list_jobs = _Question(rpcs.LIST_JOBS)
    list_tasks = _Question(rpcs.LIST_TASKS)

    def __init__(self, client: AsyncClient, opened: v1.OpenSessionResponse) -> None:
        """`AsyncClient.open_session` makes one."""
        self._client = client
        self._flow = flows.SessionFlow(client.options, opened)
        self._lock = asyncio.Lock()
        self.opened = opened

    @property
    def effects(self) -> v1.SessionEffects:
        """What the changes of the last question did, and which earlier answers they made stale."""
        return self._flow.effects

    def allocate(self, task: str, node: str, card: str = "") -> None:
        """A task was given idle room."""
        self._flow.record(allocate=v1.TaskPlacement(task=task, node=node, card=card))

    def pipeline(self, task: str, node: str, card: str = "") -> None:
        """A task was promised room that is being released."""
        self._flow.record(pipeline=v1.TaskPlacement(task=task, node=node, card=card))

    def evict(self, task: str) -> None:
        """A task was told to go."""
        self._flow.record(evict=task)

    def unallocate(self, task: str) -> None:
        """Undoes allocate."""
        self._flow.record(unallocate=task)

    def unpipeline(self, task: str) -> None:
        """Undoes pipeline."""
        self._flow.record(unpipeline=task)

    def unevict(self, task: str) -> None:
        """Undoes evict."""
        self._flow.record(unevict=task)

    def bind_failed(self, task: str) -> None:
        """The bind of an allocated task failed."""
        self._flow.record(bind_failed=task)

    def job_enqueued(self, job: str) -> None:
        """A job admitted tentatively is enqueued for good."""
        self._flow.record(job_enqueued=job)

    def savepoint(self, name: str) -> None:
        """A mark to return to."""
        self._flow.record(savepoint=name)

    def rollback_to(self, name: str) -> None:
        """Undoes everything after a mark."""
        self._flow.record(rollback_to=name)

    async def flush(self) -> v1.SessionEffects:
        """Sends the changes that wait for a question."""
        return await self._run(self._flow.flush())

    async def node_table(self) -> NodeTable:
        """The names of the slots in this session's answers."""
        return await self._run(flows.node_table(self._client.options, self._flow.table, None, self.opened.session))

    async def commit(self, jobs: Iterable[str] = ()) -> v1.CommitSessionResponse:
        """Ends the session; placements that still hold are kept."""
        return await self._run(self._flow.commit(list(jobs)))

    async def close(self) -> v1.CloseSessionResponse:
        """Ends the session; the scheduler binds by itself. A second time it does no harm."""
        return await self._run(self._flow.close())

    async def _run(self, flow: Flow[R]) -> R:
        async with self._lock:
            return await self._client.run(flow)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # It was committed, or ends with its lease; what went wrong inside is said, if anything did.
        with suppress(errors.PumiceError):
            await self.close()


class AsyncFeed:
    """A source of records. Batches are numbered; after a loss the whole is sent."""

    def __init__(self, client: AsyncClient, flow: flows.FeedFlow) -> None:
        """`AsyncClient.feed` makes one."""
        self._client = client
        self._flow = flow
        self._lock = asyncio.Lock()

    @property
    def position(self) -> v1.SourcePosition:
        """The last batch sent; a question can wait for it."""
        flow = self._flow
        return v1.SourcePosition(source=flow.source, source_epoch=flow.source_epoch, sequence=flow.sequence)

    async def full_sync(self, cluster: v1.Cluster) -> v1.BatchOutcome:
        """Replaces all records of the source. Look at `refused`: those were not taken."""
        return await self._run(self._flow.full_sync(cluster))

    async def delta(self, put: v1.Cluster | None = None, remove: v1.Removals | None = None) -> v1.BatchOutcome:
        """Sends changes. After a loss `full` is asked for everything, else ResyncError."""
        return await self._run(self._flow.delta(put, remove))

    async def open_session(
        self,
        against: v1.EvaluationRef | None = None,
        *,
        put: v1.Cluster | None = None,
        remove: v1.Removals | None = None,
        lease: float | None = None,
    ) -> AsyncSession:
        """Begins a scheduling cycle on these changes, in one call."""
        span = None if lease is None else duration(lease)
        return AsyncSession(self._client, await self._run(self._flow.open_session(against, put, remove, span)))

    async def _run(self, flow: Flow[R]) -> R:
        async with self._lock:
            return await self._client.run(flow)
