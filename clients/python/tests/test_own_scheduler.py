"""The scheduler of docs/guides/own-scheduler.md runs, and prints what the page shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from server import ROOT, Server

FOLDER = ROOT / "examples" / "own-scheduler"
POLICY = ROOT / "examples" / "queues" / "policy.yaml"
PAGE = ROOT / "docs" / "guides" / "own-scheduler.md"


def run_scheduler(address: str) -> str:
    command = [sys.executable, str(FOLDER / "python" / "own_scheduler.py"), str(FOLDER / "cluster.json"), address]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_places_rejects_and_releases(tmp_path: Path) -> None:
    server = Server(tmp_path, "--policy-file", str(POLICY))
    try:
        assert f"```text\n{run_scheduler(server.address)}```" in PAGE.read_text()
    finally:
        server.stop()


def test_it_binds_nothing_without_a_server(server: Server) -> None:
    server.stop()
    lines = run_scheduler(server.address).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("no decision, the next cycle tries again: UNAVAILABLE") for line in lines)
