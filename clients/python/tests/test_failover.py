"""Several addresses: the next server takes over with the whole state, and the first comes back."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import conftest
import pytest
from server import Server
from test_feed import eventually, source

import pumice
from pumice import _rpcs as rpcs
from pumice import errors, v1
from pumice._flow import call
from pumice._servers import Server as Address
from pumice._servers import ServerList

BIG = pumice.task(cpu=6)
# Waits a second for a server that hangs, and long for one that has other work.
PATIENT = pumice.Options(timeout=30, attempt_timeout=1, attempts=20)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Two servers with states of their own."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    servers = Server(folders[0], "--drain-delay-ms", "300"), Server(folders[1])
    yield servers
    for server in servers:
        server.resume()
        server.stop()


def both(pair: tuple[Server, Server]) -> str:
    return f"{pair[0].address}, {pair[1].address}"


def room(client: pumice.Client) -> list[str]:
    """Names of the nodes with room for a task of six cores."""
    return list(client.filter(tasks=[BIG]).result.items[0].fit.names)


def fed(client: pumice.Client, second: Server, full: Callable[[], v1.Cluster] | None = conftest.cluster) -> pumice.Feed:
    """A feed whose records have come to the second server, too."""
    feed = client.feed("tests", full=full)
    feed.full_sync(conftest.cluster())
    with pumice.connect(second.address) as direct:
        eventually("the second server has the state", lambda: len(direct.tasks()) == 3)
    return feed


def test_the_next_address_responds_with_the_whole_state(
    pair: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    with pumice.connect(both(pair)) as client, caplog.at_level(logging.WARNING, logger="pumice"):
        feed = fed(client, pair[1], full=None)
        assert room(client) == ["n2", "n3"]
        # What the last call sent counts, even if the second server has it not yet.
        feed.delta(v1.Cluster(nodes=[pumice.node("n4", cpu=8, memory="32Gi")]))
        pair[0].stop()
        assert room(client) == ["n2", "n3", "n4"]
        assert client.address == pair[1].address
        # The owner's next change goes to the second server, and so does a session.
        feed.delta(remove=v1.Removals(nodes=["n2"]))
        with feed.open_session(put=v1.Cluster(nodes=[pumice.node("n5", cpu=8, memory="32Gi")])) as session:
            assert session.address == pair[1].address
            assert list(session.filter(tasks=[BIG]).result.items[0].fit.names) == ["n3", "n4", "n5"]
    assert caplog.text.count("Pumice is asked at") == 1
    assert f"and not at {pair[0].address} any more" in caplog.text


def test_the_change_of_a_call_that_finds_the_server_gone_arrives_at_the_next(pair: tuple[Server, Server]) -> None:
    with pumice.connect(both(pair)) as client:
        feed = fed(client, pair[1], full=None)
        pair[0].stop()
        outcome = feed.delta(v1.Cluster(nodes=[pumice.node("n4", cpu=8, memory="32Gi")]))
        assert not outcome.HasField("resync")
        assert room(client) == ["n2", "n3", "n4"]


def test_a_server_that_was_cut_off_gets_what_it_missed_before_it_is_asked(
    pair: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    options = pumice.Options(timeout=1, max_backoff=600)
    present = conftest.cluster()
    with pumice.connect(both(pair), options=options) as client, caplog.at_level(logging.WARNING, logger="pumice"):
        feed = fed(client, pair[1], full=lambda: present)
        pair[1].pause()
        del present.nodes[1]
        feed.delta(remove=v1.Removals(nodes=["n2"]))
        eventually("the second server has not got it", lambda: "got no heartbeat" in caplog.text)
        pair[1].resume()
        pair[0].stop()
        assert room(client) == ["n3"]
        assert client.address == pair[1].address
    # Without the records nobody is asked.
    with pumice.connect(["127.0.0.1:1", pair[1].address]) as client:
        bare = client.feed("bare")
        bare.full_sync(v1.Cluster())
        for way in bare._ways:
            way.flow.in_sync = False
        client._servers._restored = False
        with pytest.raises(errors.ResyncError, match="lacks its records"):
            room(client)


def test_an_address_that_never_was_is_passed_over(pair: tuple[Server, Server]) -> None:
    for target in (
        ["127.0.0.1:1", pair[0].address],
        f"{pair[0].address},127.0.0.1:1",
        f"unix:/nowhere, {pair[0].socket}",
    ):
        with pumice.connect(target) as client, client.feed("tests") as feed:
            feed.full_sync(conftest.cluster())
            assert room(client) == ["n2", "n3"]
    for target in ("a,a", "a,", ""):
        with pytest.raises(ValueError, match="target"):
            pumice.connect(target)


def test_a_server_that_hangs_costs_one_timeout_and_is_used_again(pair: tuple[Server, Server]) -> None:
    options = pumice.Options(timeout=6, return_after="300ms", max_backoff="100ms")
    with pumice.connect(both(pair), options=options) as client:
        present = conftest.cluster()
        feed = fed(client, pair[1], full=lambda: present)
        pair[0].pause()
        assert room(client) == ["n2", "n3"]
        assert client.address == pair[1].address
        gone = v1.Removals(nodes=["n2"], tasks=["default/old"])
        del present.nodes[1], present.tasks[0]
        feed.delta(remove=gone)
        assert room(client) == ["n1", "n3"]
        pair[0].resume()
        eventually("the first address is in use again", lambda: client.address == pair[0].address)
        assert room(client) == ["n1", "n3"], "the server that hung does not know what has changed meanwhile"


def test_a_server_that_stops_loses_no_call(pair: tuple[Server, Server]) -> None:
    with pumice.connect(both(pair), options=pumice.Options(return_after="100ms")) as client:
        feed = fed(client, pair[1])
        stop = threading.Timer(0.2, pair[0].drain)
        stop.start()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert room(client) == ["n2", "n3"]
        assert client.address == pair[1].address
        feed.close()


def test_a_server_that_comes_back_gets_everything_first(pair: tuple[Server, Server], tmp_path: Path) -> None:
    with pumice.connect(both(pair), options=pumice.Options(return_after="200ms", max_backoff="100ms")) as client:
        feed = fed(client, pair[1])
        pair[0].stop()
        assert room(client) == ["n2", "n3"]
        folder = tmp_path / "again"
        folder.mkdir()
        again = Server(folder, "--grpc-address", pair[0].address)
        try:
            deadline = time.monotonic() + 30
            while client.address != pair[0].address:
                assert room(client) == ["n2", "n3"]
                assert time.monotonic() < deadline, "the first address is not used again"
            end = time.monotonic() + 1
            while time.monotonic() < end:
                assert room(client) == ["n2", "n3"]
            assert client.address == pair[0].address
        finally:
            feed.close()
            again.stop()


def test_a_server_that_was_restarted_unseen_gets_everything_before_its_response_counts(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    options = pumice.Options(attempts=100, timeout=30)
    with pumice.connect(pair[0].address, options=options) as client:
        feed = client.feed("tests", full=conftest.cluster, heartbeat=600)
        feed.full_sync(conftest.cluster())
        pair[0].stop()
        folder = tmp_path / "again"
        folder.mkdir()
        again = Server(folder, "--grpc-address", pair[0].address)
        try:
            assert room(client) == ["n2", "n3"]
        finally:
            feed.close()
            again.stop()


def test_a_session_is_lost_with_its_server(pair: tuple[Server, Server]) -> None:
    with pumice.connect(both(pair), options=PATIENT) as client:
        feed = fed(client, pair[1])
        session = feed.open_session()
        session.allocate("default/gang-0", "n2")
        assert list(session.filter(tasks=[BIG]).result.items[0].fit.names) == ["n3"]
        pair[0].stop()
        with pytest.raises(errors.SessionEndedError) as lost:
            session.filter(tasks=[BIG])
        assert lost.value.reason == "SESSION_UNREACHABLE"
        assert lost.value.metadata["server"] == pair[0].address
        with pytest.raises(errors.SessionEndedError) as unknown:
            session.commit()
        assert not unknown.value.decided
        with feed.open_session() as fresh:
            assert fresh.address == pair[1].address
            assert list(fresh.filter(tasks=[BIG]).result.items[0].fit.names) == ["n2", "n3"]


def test_a_fenced_feed_is_fenced_at_every_address(pair: tuple[Server, Server]) -> None:
    with (
        pumice.connect(both(pair)) as older,
        pumice.connect(both(pair)) as newer,
        pumice.connect(pair[1].address) as second,
    ):
        feed = fed(older, pair[1])
        other = newer.feed("tests")
        other.full_sync(v1.Cluster(nodes=[pumice.node("new", cpu=8, memory="32Gi")]))
        epoch = other.position.source_epoch
        eventually("the newer writes there", lambda: source(second, "tests").position.source_epoch == epoch)
        # The older process was paused; when it wakes, the server that it knew is gone.
        pair[0].stop()
        for _ in range(2):
            with pytest.raises(errors.FencedError):
                feed.delta(v1.Cluster(nodes=[pumice.node("old", cpu=8, memory="32Gi")]))
        assert room(second) == ["new"]


def test_only_what_is_harmless_is_repeated_elsewhere(pair: tuple[Server, Server]) -> None:
    with (
        pumice.connect(both(pair), options=PATIENT) as client,
        pumice.connect(pair[1].address) as second,
    ):
        feed = fed(client, pair[1])
        before = second.get_policy().policy.version
        pair[0].pause()
        with pytest.raises(errors.DeadlineError) as unknown:
            client.reload_policy(document=conftest.SPREAD)
        assert not unknown.value.decided
        assert second.get_policy().policy.version == before
        pair[0].resume()
        feed.close()
    with pumice.connect(["127.0.0.1:1", pair[1].address]) as other, pumice.connect(pair[1].address) as second:
        # Never sent, and so it goes to the next address.
        other.reload_policy(document=conftest.SPREAD)
        assert second.get_policy().policy.version != before


@pytest.mark.parametrize("kind", ["place", "confirm", "release"])
def test_what_is_idempotent_is_repeated_at_the_next_address(pair: tuple[Server, Server], kind: str) -> None:
    with pumice.connect(both(pair), options=PATIENT) as client:
        feed = fed(client, pair[1])
        pair[0].pause()
        if kind == "place":
            gang = v1.TaskGroup(names=["default/gang-0", "default/gang-1"])
            placed = client.place(groups=[gang], effect=v1.PLACE_EFFECT_COMMIT, commit_key="tests/1")
            assert placed.HasField("commit")
        elif kind == "confirm":
            subject = v1.AdmitSubject(job=v1.Job(name="default/gang"), attempt=1)
            assert client.admit(mode=v1.ADMIT_MODE_CONFIRM, items=[subject]).result.items[0].permitted
        else:
            client.release_reservation(job="default/gang")
        assert client.address == pair[1].address
        feed.close()


def test_an_outage_is_that_of_all_addresses(pair: tuple[Server, Server]) -> None:
    with pumice.connect(both(pair), options=pumice.Options(attempts=1)) as client:
        feed = fed(client, pair[1])
        feed.close()
        for server in pair:
            server.stop()
        for _ in range(2):
            with pytest.raises(errors.UnavailableError, match="none of 2 addresses works"):
                room(client)


async def test_the_asyncio_client_goes_on_at_the_next_address_and_comes_back(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    options = pumice.Options(return_after="200ms", max_backoff="100ms")
    async with pumice.aio.connect(both(pair), options=options) as client, pumice.aio.connect(pair[1].address) as direct:
        feed = client.feed("tests", full=conftest.cluster)
        await feed.full_sync(conftest.cluster())
        deadline = time.monotonic() + 30
        while len(await direct.tasks()) != 3:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        session = await feed.open_session()
        pair[0].stop()
        found = await asyncio.gather(*(client.filter(tasks=[BIG]) for _ in range(8)))
        assert [list(response.result.items[0].fit.names) for response in found] == [["n2", "n3"]] * 8
        with pytest.raises(errors.SessionEndedError):
            await session.filter(tasks=[BIG])
        async with await feed.open_session() as fresh:
            assert fresh.address == pair[1].address
        folder = tmp_path / "again"
        folder.mkdir()
        again = Server(folder, "--grpc-address", pair[0].address)
        try:
            deadline = time.monotonic() + 30
            while client.address != pair[0].address:
                assert (await client.filter(tasks=[BIG])).result.items[0].fit_count == 2
                assert time.monotonic() < deadline
            assert (await client.filter(tasks=[BIG])).result.items[0].fit_count == 2
        finally:
            again.stop()


def test_a_server_that_is_stopping_is_not_used_again(tmp_path: Path, pair: tuple[Server, Server]) -> None:
    folder = tmp_path / "stopping"
    folder.mkdir()
    stopping = Server(folder, "--drain-delay-ms", "600000")
    try:
        options = pumice.Options(return_after="100ms")
        with pumice.connect([stopping.address, pair[1].address], options=options) as client:
            feed = fed(client, pair[1])
            stopping.drain()
            first = client._servers.in_use()

            def serving() -> bool:
                return bool(client.run(call(client.options, rpcs.HEALTH, rpcs.HEALTH.request(), first)).serving)

            # It still answers, and says that it does not serve.
            eventually("the first server is stopping", lambda: not serving())
            assert room(client) == ["n2", "n3"]
            assert client.address == stopping.address
            client._servers.failed(first, "it is stopping")
            end = time.monotonic() + 1
            while time.monotonic() < end:
                assert client.address == pair[1].address
                time.sleep(0.01)
            feed.close()
    finally:
        stopping.stop()


def test_a_server_that_cannot_write_is_left_for_one_that_can(tmp_path: Path, pair: tuple[Server, Server]) -> None:
    folder, store, away = tmp_path / "storing", tmp_path / "store", tmp_path / "away"
    for made in (folder, store, away):
        made.mkdir()
    storing = Server(folder, "--data-dir", str(store))
    try:
        with pumice.connect([storing.address, pair[1].address]) as client:
            feed = fed(client, pair[1])
            for file in list(store.iterdir()):
                file.rename(away / file.name)
            subject = v1.AdmitSubject(job=v1.Job(name="default/gang"), attempt=1)
            assert client.admit(mode=v1.ADMIT_MODE_CONFIRM, items=[subject]).result.items[0].permitted
            assert client.address == pair[1].address
            feed.close()
    finally:
        storing.stop()


def test_a_server_that_comes_late_gets_the_records_of_the_owner(pair: tuple[Server, Server], tmp_path: Path) -> None:
    pair[1].stop()
    with pumice.connect(both(pair), options=pumice.Options(max_backoff="100ms")) as client:
        # Without `full` the records of this call are all that there are.
        feed = client.feed("tests")
        feed.full_sync(conftest.cluster())
        feed.delta(remove=v1.Removals(nodes=["n2"]))
        folder = tmp_path / "late"
        folder.mkdir()
        late = Server(folder, "--grpc-address", pair[1].address)
        try:
            # A channel to the address that refused until now waits for its next attempt, and would be refused by that.
            with pumice.connect(late.address, options=pumice.Options(wait_for_ready=True)) as direct:
                eventually("the late server has the state", lambda: len(direct.nodes()) == 2)
            pair[0].stop()
            assert room(client) == ["n3"]
        finally:
            feed.close()
            late.stop()


async def test_every_server_gets_the_changes_of_the_asyncio_client(pair: tuple[Server, Server]) -> None:
    async with pumice.aio.connect(both(pair)) as client, pumice.aio.connect(pair[1].address) as direct:
        feed = client.feed("tests")
        await feed.full_sync(conftest.cluster())
        await feed.delta(remove=v1.Removals(nodes=["n2"]))
        deadline = time.monotonic() + 30
        while [status.node.name for status in await direct.nodes()] != ["n1", "n3"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


def test_an_address_that_fails_again_rests_longer() -> None:
    now = 0.0
    first, second = Address("a"), Address("b")
    servers = ServerList([first, second], 1.0, lambda: now)
    for wanted in (1, 2, 4, 8, 16, 32, 32):
        servers.failed(first, "away")
        servers.failed(first, "away")
        assert servers.in_use() is second
        assert servers.preferred() == (None, wanted)
        now += wanted
        assert servers.preferred() == (first, None)
        servers.came_back(first)
        now += wanted / 2
    now += 1000
    servers.failed(first, "away")
    assert servers.preferred() == (None, 1)
    # While none works, the one in use stays, and one that answers takes its place.
    servers.failed(second, "away")
    assert servers.in_use() is second
    assert servers.next([second]) is first
    servers.answered(first, restored=True)
    assert servers.in_use() is first
