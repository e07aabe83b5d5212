"""Dashboard and alerts: a real Prometheus scrapes a real server, answers every panel and sees alerts fire."""

import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster import free_port
from tools import CHART, ROOT, Object, run, until

MONITORING = CHART / "monitoring"
PROMETHEUS = Path(os.environ["PROMETHEUS"])
CARDS = ROOT / "examples" / "cards"


def test_every_alert_has_a_unit_test_which_passes() -> None:
    run(PROMETHEUS / "promtool", "check", "rules", "--lint-fatal", MONITORING / "alerts.yaml")
    run(PROMETHEUS / "promtool", "test", "rules", MONITORING / "alerts_test.yaml")
    tests = (MONITORING / "alerts_test.yaml").read_text()
    runbook = (ROOT / "docs" / "alerts.md").read_text()
    for alert in re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yaml").read_text()):
        assert alert in tests, f"{alert} has no unit test"
        assert f"\n## {alert}\n" in runbook, f"{alert} has no entry in docs/alerts.md"


@dataclass
class WatchedServer:
    """A server, and a Prometheus that scrapes it each second."""

    server: "subprocess.Popen[bytes]"
    grpc: str
    prometheus: str

    def pumice(self, *arguments: str | Path, code: int = 0) -> str:
        """Output of the command line."""
        done = run(os.environ["PUMICE_BIN"], *arguments, "--server", self.grpc, check=False)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def query(self, expression: str) -> list[Object]:
        """Series of an expression now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.prometheus}/api/v1/query?{query}", timeout=10) as response:
            found: list[Object] = json.load(response)["data"]["result"]
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    """A server with records, policies and calls of many kinds."""
    folder = tmp_path_factory.mktemp("monitoring")
    grpc, http, web = (f"127.0.0.1:{free_port()}" for _ in range(3))
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [os.environ["PUMICE_BIN"], "serve", "--grpc-address", grpc, "--http-address", http],
        stdout=log,
        stderr=log,
    )
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "pumice", "static_configs": [{"targets": [http]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    prometheus = subprocess.Popen(
        [PROMETHEUS / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={web}"],
        stdout=log,
        stderr=log,
    )  # fmt: skip
    made = WatchedServer(server, grpc, f"http://{web}")
    try:
        until("the server answers", lambda: run(os.environ["PUMICE_BIN"], "state", "show", "--server", grpc))
        until("Prometheus scrapes it", lambda: made.query("pumice_build_info"))
        yield made
    finally:
        for program in (prometheus, server):
            program.send_signal(signal.SIGTERM)
            program.wait(30)


def use(watched: WatchedServer, folder: Path) -> None:
    """Causes series of every kind that the dashboard shows."""
    watched.pumice("state", "load", CARDS / "cluster.yaml", CARDS / "jobs.yaml", ROOT / "deploy/check/running.yaml")
    watched.pumice("policy", "push", CARDS / "policy.yaml")
    (folder / "bad.yaml").write_text("tiers: 7\n")
    watched.pumice("policy", "push", folder / "bad.yaml", code=1)


def test_every_panel_shows_something(watched: WatchedServer, tmp_path: Path) -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) > 20
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    use(watched, tmp_path)
    empty: list[str] = []

    def answered() -> bool:
        # Rates need calls between two scrapes.
        watched.pumice("score", "--cpu", "1")
        watched.pumice("filter", "--cpu", "1", "--memory", "1Gi")
        watched.pumice("policy", "get", "--name", "absent", code=1)
        empty.clear()
        for panel in panels:
            for target in panel["targets"]:
                expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "5s")
                assert "$" not in expression, expression
                if not watched.query(expression):
                    empty.append(f"{panel['title']}: {expression}")
        return not empty

    try:
        until("every panel has an answer", answered, 30)
    except AssertionError as error:
        raise AssertionError("\n".join(empty)) from error


def test_a_server_that_is_gone_fires(watched: WatchedServer) -> None:
    assert watched.query('ALERTS{alertname="PumiceDown"}') == []
    watched.server.send_signal(signal.SIGTERM)
    watched.server.wait(30)
    until("the alert is pending", lambda: watched.query('ALERTS{alertname="PumiceDown"}'))
