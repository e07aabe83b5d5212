"""The asyncio client, against a real server."""

from __future__ import annotations

import asyncio

import conftest
import pytest
from server import Server

import pumice
from pumice import errors, table, v1


async def test_calls_run_side_by_side(aclient: pumice.AsyncClient) -> None:
    await aclient.feed("tests").full_sync(conftest.cluster())
    await aclient.reload_policy(document=conftest.SPREAD)
    responses = await asyncio.gather(
        *(aclient.score(tasks=[pumice.task(cpu=cpu)], with_filter=True, limit=1) for cpu in range(1, 9))
    )
    assert [list(response.result.items[0].nodes.names) for response in responses] == [["n2"]] * 8
    info = await aclient.get_server_info()
    assert (await aclient.node_table(info.node_table)).names == ["n1", "n2", "n3"]
    assert len(await aclient.tasks()) == 3
    assert len(await aclient.nodes()) == 3
    assert len(await aclient.jobs()) == 1
    assert len(await aclient.queues()) == 1


async def test_a_session(aclient: pumice.AsyncClient) -> None:
    feed = aclient.feed("tests", full=conftest.cluster)
    async with await feed.open_session() as session:
        session.allocate("default/gang-0", "n2")
        passed = await session.filter(tasks=[pumice.task(cpu=6)])
        assert table.fitting(passed.result) == [["n3"]]
        assert session.effects.applied_through == 1
    with pytest.raises(errors.SessionEndedError):
        await session.flush()


async def test_a_stream_of_batches(aclient: pumice.AsyncClient) -> None:
    first = v1.Batch(source="s", source_epoch=1, sequence=1, kind=v1.BATCH_KIND_FULL_SYNC_LAST, part=1)
    outcomes = [outcome async for outcome in aclient.sync([first])]
    assert outcomes[-1].position.sequence == 1


async def test_a_deadline_ends_a_call(server: Server) -> None:
    async with pumice.aio.connect(str(server.socket), options=pumice.Options(timeout=0.3, attempts=2)) as client:
        await client.feed("tests").full_sync(conftest.cluster())
        newest = (await client.get_server_info()).revision
        never = v1.Revision(epoch=newest.epoch, number=newest.number + 1000)
        with pytest.raises(errors.PumiceError) as late:
            await client.filter(against=pumice.latest(at_least=never, max_wait=20), tasks=[pumice.task(cpu=1)])
        assert late.value.reason in ("", "REVISION_NOT_REACHED", "DEADLINE_EXCEEDED")
        assert (await client.with_options(timeout=5).get_server_info()).version


async def test_a_cancelled_call_of_a_session_is_sent_again(aclient: pumice.AsyncClient) -> None:
    async with await aclient.feed("tests", full=conftest.cluster).open_session() as session:
        session.allocate("default/gang-0", "n2")
        subject = v1.AdmitSubject(job=v1.Job(name="default/gang"))
        pending = asyncio.create_task(session.admit(mode=v1.ADMIT_MODE_TENTATIVE, items=[subject]))
        await asyncio.sleep(0)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        session.allocate("default/gang-1", "n3")
        assert (await session.flush()).applied_through in (2, 3)
        assert (await session.filter(tasks=[pumice.task(cpu=6)])).result.items[0].fit_count == 0
