"""Servers and clients for the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from server import ROOT, Server

import pumice
from pumice import v1

SPREAD = (ROOT / "examples" / "spread.yaml").read_text()


def cluster() -> v1.Cluster:
    """Three nodes, of which one is half full; a gang of two that waits."""
    return v1.Cluster(
        nodes=[pumice.node(name, cpu=8, memory="32Gi") for name in ("n1", "n2", "n3")],
        queues=[v1.Queue(name="research")],
        jobs=[v1.Job(name="default/gang", queue="research", min_member=2)],
        tasks=[
            pumice.task("default/old", cpu=4, memory="16Gi", node="n1", status=v1.TASK_STATUS_RUNNING),
            pumice.task("default/gang-0", cpu=6, memory="8Gi", job="default/gang"),
            pumice.task("default/gang-1", cpu=6, memory="8Gi", job="default/gang"),
        ],
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def client(server: Server) -> Iterator[pumice.Client]:
    with pumice.connect(server.address) as connected:
        yield connected


@pytest.fixture
def loaded(client: pumice.Client) -> pumice.Client:
    """With a cluster and a policy that spreads."""
    outcome = client.feed("tests").full_sync(cluster())
    assert not outcome.refused
    client.reload_policy(document=SPREAD)
    return client


@pytest.fixture
async def aclient(server: Server) -> AsyncIterator[pumice.AsyncClient]:
    async with pumice.aio.connect(server.address) as connected:
        yield connected
