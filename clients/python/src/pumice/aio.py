"""Client for asyncio, with the same methods as `pumice.client`."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import grpc
import grpc.aio

from pumice import _rpcs as rpcs
from pumice import _session as flows
from pumice import errors, v1
from pumice._async_feed import AsyncFeed
from pumice._connect import DEFAULT_TARGET, resolve, split
from pumice._feed import FeedOptions
from pumice._flow import Flow, Options, Restore, Rpc, Sleep, call, come_back, seconds
from pumice._loop import Lock, Worker, requests, sleep
from pumice._servers import Server, ServerList
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
    """Client of the three services of a server, or of several that are replicas: then of the first that works.

    Use it from one event loop."""

    filter = _Method(rpcs.FILTER)
    """Returns the nodes on which tasks may run."""
    score = _Method(rpcs.SCORE)
    """Returns the scores of nodes for tasks."""
    place = _Method(rpcs.PLACE)
    """Places the tasks of one job."""
    admit = _Method(rpcs.ADMIT)
    """Decides whether jobs may start and tasks may be allocated."""
    order = _Method(rpcs.ORDER)
    """Returns the order in which queues, jobs and tasks are served."""
    select_victims = _Method(rpcs.SELECT_VICTIMS)
    """Selects tasks to evict for a preemptor."""
    apply = _Method(rpcs.APPLY)
    """Applies one batch; a `feed` numbers batches itself."""
    get_node_table = _Method(rpcs.GET_NODE_TABLE)
    """Returns a part of the names of slots; `node_table` returns all."""
    get_server_info = _Method(rpcs.GET_SERVER_INFO)
    """Returns the server's version, plugins, limits, sources and policies."""
    who_am_i = _Method(rpcs.WHO_AM_I)
    """Returns the caller's identity and roles as the server sees them."""
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
    """Removes a source and its records. The client never retries this call."""
    forget_resource = _Method(rpcs.FORGET_RESOURCE)
    """Forgets a resource name. The client never retries this call."""
    release_reservation = _Method(rpcs.RELEASE_RESERVATION)
    """Ends a reservation."""
    release_assumptions = _Method(rpcs.RELEASE_ASSUMPTIONS)
    """Ends assumed placements. The client retries this call only if it names a session."""
    reload_policy = _Method(rpcs.RELOAD_POLICY)
    """Activates a document. A rejected document raises InvalidError with a report. The client retries only dry runs."""
    rollback_policy = _Method(rpcs.ROLLBACK_POLICY)
    """Activates an earlier version again. The client retries only dry runs."""
    delete_policy = _Method(rpcs.DELETE_POLICY)
    """Deletes a policy. The client never retries this call."""
    get_policy = _Method(rpcs.GET_POLICY)
    """Returns one version of a policy."""
    list_policies = _Method(rpcs.LIST_POLICIES)
    """Lists versions, newest first."""

    def __init__(self, channel: grpc.aio.Channel, options: Options | None = None) -> None:
        """A client on a channel of your own; `connect` makes one."""
        options = options or Options()
        servers = options.servers or ServerList([Server(options.target, channel)])
        self.options = replace(options, servers=servers)
        self._channel = channel
        self._servers = servers
        self._feeds: weakref.WeakSet[AsyncFeed] = weakref.WeakSet()
        self._returning: Worker | None = None
        self._table = NodeTable()
        self._reading = Lock()

    def with_options(self, **changed: Any) -> AsyncClient:
        """The same connection with other `Options`: `client.with_options(timeout=0.2).score(...)`."""
        other = AsyncClient(self._channel, replace(self.options, **changed))
        other._feeds = self._feeds
        return other

    async def open_session(
        self,
        against: v1.EvaluationRef | None = None,
        *,
        batch: v1.Batch | None = None,
        lease: float | str | None = None,
    ) -> AsyncSession:
        """Opens a session, which pins cluster state and policy. `lease` is in seconds, or a text such as "30s"."""
        span = None if lease is None else duration(lease)
        request = v1.OpenSessionRequest(against=against, batch=batch, lease=span)
        opened, server = await self.run(flows.open_session(self.options, request))
        return self._session(opened, server)

    def _session(self, opened: v1.OpenSessionResponse, server: Server) -> AsyncSession:
        return AsyncSession(self, opened, server)

    def feed(
        self,
        source: str,
        *,
        full: Callable[[], v1.Cluster] | None = None,
        source_epoch: int | None = None,
        part_records: int = 20_000,
        heartbeat: float | str | None = None,
    ) -> AsyncFeed:
        """Makes a feed, which writes the records of a source. For a full sync it calls `full` for all records.

        `source_epoch` defaults to the time in nanoseconds: a process that starts later fences an older one. While the
        feed has nothing to send, it sends an empty batch after `heartbeat` of silence, so that its source does not
        become stale: seconds or a text such as "5s", 0: never, None: a third of the service's `source_stale_ms`. A
        heartbeat that finds the service restarted calls `full` in its own task.
        """
        own = FeedOptions.of(full, source_epoch, part_records, heartbeat)
        feed = AsyncFeed(self, source, own)
        self._feeds.add(feed)
        return feed

    async def sync(self, batches: Iterable[v1.Batch] | AsyncIterable[v1.Batch]) -> AsyncIterator[v1.BatchOutcome]:
        """Applies a stream of batches and yields their outcomes. It has no deadline and is never repeated."""
        stream = self._servers.in_use().channel.stream_stream(
            rpcs.SYNC.path,
            request_serializer=v1.SyncRequest.SerializeToString,
            response_deserializer=v1.SyncResponse.FromString,
        )
        try:
            async for response in stream(requests(batches), metadata=self.options.metadata):
                yield response.outcome
        except grpc.RpcError as raw:
            raise errors.read(raw, self.options.target) from raw

    async def node_table(self, version: v1.NodeTableVersion | None = None) -> NodeTable:
        """Returns the names of slots, of a version (`response.metadata.node_table`); None: the latest."""
        async with self._reading:
            return await self.run(flows.node_table(self.options, self._table, version, ""))

    async def nodes(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.NodeStatus]:
        """Returns all nodes, or those named, with their usage."""
        request = v1.ListNodesRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_NODES, request, "nodes"))

    async def queues(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.QueueStatus]:
        """Returns all queues, or those named, with their accounts."""
        request = v1.ListQueuesRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_QUEUES, request, "queues"))

    async def jobs(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.JobStatus]:
        """Returns all jobs, or those named, with their accounts."""
        request = v1.ListJobsRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_JOBS, request, "jobs"))

    async def tasks(self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None) -> list[v1.StoredTask]:
        """Returns all tasks, or those named."""
        request = v1.ListTasksRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_TASKS, request, "tasks"))

    async def namespaces(
        self, names: Iterable[str] = (), against: v1.EvaluationRef | None = None
    ) -> list[v1.NamespaceStatus]:
        """Returns all namespaces, or those named."""
        request = v1.ListNamespacesRequest(against=against, names=names)
        return await self.run(flows.every(self.options, rpcs.LIST_NAMESPACES, request, "namespaces"))

    async def run(self, flow: Flow[R]) -> R:
        """Runs the steps of a call."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    await sleep(step.seconds)
                    step = flow.send(None)
                    continue
                if isinstance(step, Restore):
                    try:
                        await self._restore(step)
                    except errors.PumiceError as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(None)
                    continue
                try:
                    response = await self._stub(step.rpc, step.server)(
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

    async def _restore(self, step: Restore) -> None:
        """Has each feed send a server what it lacks."""
        for feed in list(self._feeds):
            await feed._restore(step.server, step.timeout)

    @staticmethod
    def _stub(rpc: Rpc[Any, Any], server: Server) -> Any:
        stub = server.stubs.get(rpc.path)
        if stub is None:
            request: Any = rpc.request
            stub = server.channel.unary_unary(
                rpc.path,
                request_serializer=request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
            server.stubs[rpc.path] = stub
        return stub

    def _look_for_the_way_back(self) -> None:
        if self._returning is None or self._returning.has_ended:
            self._returning = Worker(self._come_back, "pumice-way-back")

    async def _come_back(self) -> None:
        # A channel that was closed meanwhile raises an error of its own.
        with suppress(ValueError):
            await self.run(come_back(self._servers, self.options, rpcs.HEALTH))

    @property
    def address(self) -> str:
        """Address that is in use."""
        return self._servers.in_use().target

    async def close(self) -> None:
        """Closes the connection, and the feeds of the client."""
        for feed in list(self._feeds):
            await feed.close()
        self._servers.closed = True
        if self._returning is not None:
            self._returning.stop()
        for server in self._servers.all:
            await server.channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    target: str | Sequence[str] = DEFAULT_TARGET,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    token_file: str | Path | None = None,
    options: Options | None = None,
    channel_options: Sequence[tuple[str, Any]] = (),
) -> AsyncClient:
    """Makes a client of `HOST:PORT`, `HOST` (port 7461), `https://…`, `unix:PATH` or the path of a socket.

    Several of them, in a list or with commas between, are replicas in the order of preference.

    The first call connects. `token_file` has a bearer token, sent over TLS or to this machine; each call reads it.
    """
    options = options or Options()
    servers = []
    addresses = split(target)
    for address in addresses:
        end = resolve(address, credentials, channel_options, token_file, several=len(addresses) > 1)
        if end.credentials is None:
            channel = grpc.aio.insecure_channel(end.target, options=end.options)
        else:
            channel = grpc.aio.secure_channel(end.target, end.credentials, options=end.options)
        servers.append(Server(address, channel))
    names = ", ".join(server.target for server in servers)
    several = ServerList(servers, seconds("return_after", options.return_after))
    client = AsyncClient(servers[0].channel, replace(options, target=names, servers=several))
    several.left = client._look_for_the_way_back
    return client


class _SessionCall(Generic[P, R]):
    """A decision call of a session, which sets `against`."""

    def __init__(self, rpc: Rpc[P, R]) -> None:
        self.rpc = rpc

    def __get__(self, owner: AsyncSession, _type: object = None) -> Callable[P, Coroutine[Any, Any, R]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return await owner._run(owner._flow.send(self.rpc, self.rpc.request(*args, **kwargs)))

        return method


class AsyncSession:
    """One scheduling cycle. Changes are sent with the next call. Close the session, or use `async with`."""

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

    def __init__(self, client: AsyncClient, opened: v1.OpenSessionResponse, server: Server) -> None:
        """`AsyncClient.open_session` makes one."""
        self._client = client
        self._flow = flows.SessionFlow(client.options, opened, server)
        self._lock = Lock()
        self.opened = opened

    @property
    def address(self) -> str:
        """Address of the server that opened the session, to which all of its calls go."""
        return self._flow.server.target

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

    async def flush(self) -> v1.SessionEffects:
        """Sends the pending changes."""
        return await self._run(self._flow.flush())

    async def node_table(self) -> NodeTable:
        """Returns the names of the slots in this session's responses."""
        return await self._run(self._flow.node_table())

    async def commit(self, jobs: Iterable[str] = ()) -> v1.CommitSessionResponse:
        """Commits the placements that still hold, and ends the session."""
        return await self._run(self._flow.commit(list(jobs)))

    async def close(self) -> v1.CloseSessionResponse:
        """Ends the session without a commit; the scheduler binds on its own. Closing twice is allowed."""
        return await self._run(self._flow.close())

    async def _run(self, flow: Flow[R]) -> R:
        async with self._lock:
            return await self._client.run(flow)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # A session that cannot be closed ends with its lease; an error inside the block must not be hidden by this one.
        with suppress(errors.PumiceError):
            await self.close()
