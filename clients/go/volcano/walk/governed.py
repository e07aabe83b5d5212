"""The cluster that a walk goes through: server, schedulers, and what one reads of them."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

import cluster as objects
from cluster import SCHEDULING, Api, Kubelet, bound
from controlplane import ControlPlane, Program, free_port, metric, page, until
from facts import Facts

NODES, CARDS_PER_NODE = 60, 8
# Silence after which the server calls a source stale.
STALE = "6s"
QUOTAS = {"research": 64, "prod": 96, "load": 240}

CONFIGURATION = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: capacity-card
    arguments:
      cardUnlimitedCpuMemory: true
- plugins:
  - name: drf
  - name: predicates
  - name: resource-strategy-fit
  - name: binpack
    arguments:
      binpack.weight: {weight}
"""


class Walk:
    """The cluster, the server and the schedulers of a walk."""

    def __init__(self, options: argparse.Namespace):
        self.folder: Path = options.folder
        self.pumice_program, self.scheduler_program = options.pumice, options.scheduler
        self.facts = Facts(self.folder)
        self.plane = ControlPlane(self.folder / "plane", options.programs)
        self.api = Api(self.plane)
        objects.prepare(self.plane, self.api, options.volcano)
        self.grpc, self.http = free_port(), free_port()
        self.pumice: Program | None = None
        self.schedulers: dict[str, Program] = {}
        self.pages: dict[str, str] = {}
        # The configuration is alone in its directory: vc-scheduler watches all of it.
        self.configuration = self.folder / "configuration" / "volcano-scheduler.conf"
        self.configuration.parent.mkdir()
        self.configure(CONFIGURATION.format(weight=1))
        self.kubelet = Kubelet(self.api, dict(QUOTAS), CARDS_PER_NODE)

    def configure(self, text: str) -> None:
        """Replace the configuration of the schedulers, as a ConfigMap's volume does."""
        beside = self.folder / "volcano-scheduler.conf.new"
        beside.write_text(text)
        beside.rename(self.configuration)

    def serve(self, *more: str, durable: bool = True) -> float:
        """Start the server and wait until it is ready; returns the seconds."""
        began = time.monotonic()
        command = [
            str(self.pumice_program),
            "serve",
            "--grpc-address",
            f"127.0.0.1:{self.grpc}",
            "--http-address",
            f"127.0.0.1:{self.http}",
            "--source-stale-ms",
            STALE,
        ]
        if durable:
            command += ["--data-dir", str(self.folder / "data")]
        self.pumice = self.plane.start("pumice", [*command, *more])
        until(
            "the server is alive",
            lambda: self.pumice.running() and page(f"http://127.0.0.1:{self.http}/livez"),
            pause=0.02,
        )
        return time.monotonic() - began

    def schedule(self, name: str, **environment: str) -> Program:
        """Start a replica of vc-scheduler with leader election."""
        address = f"127.0.0.1:{free_port()}"
        self.pages[name] = f"http://{address}/metrics"
        self.schedulers[name] = self.plane.start(
            name,
            [
                str(self.scheduler_program),
                "--kubeconfig",
                str(self.plane.kubeconfig),
                "--scheduler-conf",
                str(self.configuration),
                "--leader-elect=true",
                "--leader-elect-resource-namespace=volcano-system",
                "--listen-address",
                address,
                "--enable-metrics=true",
                "--enable-healthz=true",
                "--healthz-address",
                f"127.0.0.1:{free_port()}",
                "--cache-dumper=false",
                "--plugins-dir=",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
                "--logtostderr",
                "-v=3",
            ],
            {"PUMICE_TARGET": f"127.0.0.1:{self.grpc}", **environment},
        )
        return self.schedulers[name]

    def cli(self, *arguments: str, fails: bool = False) -> str:
        """Run a command of the server's program against it."""
        run = subprocess.run(
            [str(self.pumice_program), *arguments],
            capture_output=True,
            text=True,
            env=os.environ | {"PUMICE_SERVER": f"http://127.0.0.1:{self.grpc}"},
        )
        if (run.returncode != 0) != fails:
            raise RuntimeError(f"pumice {' '.join(arguments)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
        return run.stdout + run.stderr

    def push(self, text: str) -> str:
        file = self.folder / "pushed.conf"
        file.write_text(text)
        return self.cli("policy", "push", str(file))

    def metric(self, replica: str, name: str, **labels: str) -> float:
        return metric(page(self.pages[replica]), name, **labels)

    def leader(self) -> str:
        """The name of the replica that schedules: the one whose sessions go on."""
        counts = lambda: {
            name: self.metric(name, "volcano_pumice_cycles_total")
            for name, program in self.schedulers.items()
            if program.running()
        }
        begun = counts()
        return until(
            "a replica schedules",
            lambda: next((name for name, count in counts().items() if count > begun.get(name, 0)), ""),
            60,
        )

    def group(self, name: str) -> dict:
        return self.api.get(f"{SCHEDULING}/namespaces/{objects.NAMESPACE}/podgroups/{name}")

    def until_bound(self, gang: str, pods: int, seconds: float = 120) -> float:
        """Wait until a gang is placed; returns the seconds."""
        began = time.monotonic()
        until(f"{pods} pods of {gang} are bound", lambda: bound(self.api, gang) == pods, seconds)
        return time.monotonic() - began

    def cycles(self, replica: str, number: int = 2) -> None:
        """Wait for some whole sessions."""
        names = ("volcano_pumice_cycles_total", "volcano_pumice_unavailable_cycles_total")
        begun = self.metric(replica, names[0])
        until(f"{number} more sessions end", lambda: self.metric(replica, names[0]) >= begun + number)

    def describe(self, kind: str, name: str) -> str:
        """The output of `kubectl describe`, from its conditions and events on."""
        run = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.folder / "plane" / "admin.kubeconfig"), "describe", kind, name],
            capture_output=True,
            text=True,
        )
        return run.stdout


def rest(text: str, *words: str) -> str:
    """The first line of a text with all these words."""
    return next((line.strip() for line in text.splitlines() if all(word in line for word in words)), "")


def message(line: str) -> str:
    """A line of the log, without its time."""
    return line.split("] ", 1)[-1]
