#!/usr/bin/env python3
"""Repeats KAI's published scale tests as decisions of Pumice, and prints their times.

    benches/scale.py PROGRAM [--nodes N] [--runs N] [--only TEXT] [--write]

`--write` writes the table into docs/internals/scale.md; it needs 500 nodes and an optimised program. Each test generates
its cluster as files of kubectl. Cycles are those of `pumice simulate --cycles`, without evictions' grace. Calls go to a
real server as JSON over one connection, one after another; their time includes this client. A test fails if it does not
place and evict as many pods as KAI's.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import http.client
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/internals/scale.md"
BEGIN, END = "<!-- scale: written by make bench-scale -->\n", "<!-- end of scale -->"
GPU = "nvidia.com/gpu"
GPUS = 8
CREATED = "2026-01-01T00:00:00Z"

# Volcano's plugins with entitlements by amount, and its action that takes resources back for a queue.
POLICY = """actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: capacity
  - name: nodeorder
  - name: binpack
"""

Record = dict[str, object]


def nodes(count: int) -> list[Record]:
    """Nodes like those of KAI, with eight GPUs each."""
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: str(GPUS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{at:04}"}, "status": status} for at in range(count)]


def queue(name: str, deserved: int, most: int | None = None) -> Record:
    """A queue with an entitlement to GPUs, and a limit."""
    spec: Record = {"weight": 1, "reclaimable": True, "deserved": {GPU: str(deserved)}}
    if most is not None:
        spec["capability"] = {GPU: str(most)}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def job(name: str, in_queue: str, pods: int, gpus: int, least: int | None = None, on: list[str] | None = None) -> list[Record]:
    """A pod group with its pods, waiting or on these nodes."""
    metadata = {"name": name, "namespace": "default", "creationTimestamp": CREATED}
    spec = {"minMember": least or pods, "queue": in_queue}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec, "status": {"phase": "Running" if on else "Pending"}}
    found: list[Record] = [group]
    for at in range(pods):
        requests = {GPU: str(gpus)}
        pod_spec: Record = {"schedulerName": "volcano", "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]}
        if on:
            pod_spec["nodeName"] = on[at]
        pod = {"name": f"{name}-{at}", "namespace": "default", "creationTimestamp": CREATED, "annotations": {"scheduling.k8s.io/group-name": name}}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": pod_spec, "status": {"phase": "Running" if on else "Pending"}})
    return found


def running(count: int, gpus: int) -> list[Record]:
    """Jobs of one pod of the queue `sanity` that fill the nodes."""
    a_node = GPUS // gpus
    return [record for at in range(count * a_node) for record in job(f"run-{at}", "sanity", 1, gpus, on=[f"node-{at // a_node:04}"])]


def singles(count: int, in_queue: str) -> list[Record]:
    """Jobs that wait for one GPU each."""
    return [record for at in range(count) for record in job(f"one-{at}", in_queue, 1, 1)]


@dataclass(frozen=True)
class Test:
    """A test of KAI with its published time, the same cluster here, and what has to be placed and evicted."""

    name: str
    published: str
    shape: str
    records: list[Record]
    placed: int
    evicted: int = 0
    # Jobs that a caller places with one call each: names of their pods. Empty: cycles only.
    calls: list[list[str]] = field(default_factory=list)
    # Records that arrive one job at a time between the calls.
    arriving: list[list[Record]] = field(default_factory=list)


def tests(count: int) -> Iterator[Test]:
    """The tests, on this number of nodes."""
    gpus, large = count * GPUS, count * 512 // 500
    queues = [queue("sanity", 0), queue("reclaim", gpus)]
    fill = nodes(count) + [queue("sanity", gpus)]
    each = [[f"default/one-{at}-0"] for at in range(gpus)]
    gang = [f"default/gang-{at}" for at in range(large)]
    yield Test(
        "Allocate without preferred topology", "49.4 s", f"{large} nodes, a gang of {large} pods with 2 GPUs", [*nodes(large), queue("sanity", large * GPUS), *job("gang", "sanity", large, 2)], large, calls=[gang]
    )
    yield Test("Fill cluster with single GPU jobs", "6 min 38 s", f"{gpus} jobs of one pod", fill + singles(gpus, "sanity"), gpus, calls=each)
    arriving = [job(f"one-{at}", "sanity", 1, 1) for at in range(gpus)]
    yield Test("The same while jobs are submitted", "7 min 41 s", f"{gpus} jobs, each sent before its decision", fill, gpus, calls=each, arriving=arriving)
    background = [queue("none", 0, 0)] + [record for at in range(400) for record in job(f"back-{at}", "none", 1, 1)]
    waiting = [[f"default/back-{at}-0"] for at in range(400)]
    yield Test("The same with 400 pending tasks", "6 min 38 s", f"400 jobs of a queue without quota, then {gpus}", fill + background + singles(gpus, "sanity"), gpus, calls=waiting + each)
    short = [queue("sanity", gpus - 10 * GPUS + 1), queue("reclaim", 10 * GPUS - 1)]
    yield Test("Average time to unschedulable", "250 s", "a gang of 10 pods with 8 GPUs, one GPU too few", nodes(count) + short + running(count, 1) + job("gang", "reclaim", 10, GPUS), 0)
    yield Test("Reclaim for one large job", "102 s", f"{gpus} running pods; a gang of {count // 2} pods with 8 GPUs", nodes(count) + queues + running(count, 1) + job("gang", "reclaim", count // 2, GPUS), count // 2, count // 2 * GPUS)
    yield Test("Reclaim a single GPU", "13.9 s", f"{gpus} running pods; a job of one pod", nodes(count) + queues + running(count, 1) + singles(1, "reclaim"), 1, 1)
    yield Test(f"Reclaim {gpus} single GPU jobs", "11 min 34 s", f"{gpus} running pods; {gpus} jobs", nodes(count) + queues + running(count, 1) + singles(gpus, "reclaim"), gpus, gpus)
    gangs = [record for at in range(count // 10) for record in job(f"gang-{at}", "reclaim", 10, 5)]
    yield Test("Reclaim for distributed jobs", "11 min 57 s", f"{gpus} running pods; {count // 10} gangs of 10 pods with 5 GPUs", nodes(count) + queues + running(count, 1) + gangs, count, count * 5)
    victim = job("victim", "sanity", count, GPUS, count // 2, [f"node-{at:04}" for at in range(count)])
    yield Test("Elastic distributed job reclaim", "73.3 s", f"a job of {count} pods that needs {count // 2}; a gang of {count // 2}", nodes(count) + queues + victim + job("gang", "reclaim", count // 2, GPUS), count // 2, count // 2)
    yield Test("Reclaim of whole nodes", "85 s", f"{count} running pods with 8 GPUs; a gang of {count}", nodes(count) + queues + running(count, GPUS) + job("gang", "reclaim", count, GPUS), count, count)


def in_cycles(program: str, test: Test, folder: Path) -> float:
    """Seconds of all cycles of the simulator until nothing changes."""
    command = [program, "simulate", str(folder / "cluster.json"), "--policy", str(folder / "policy.yaml"), "--cycles", "--after", "300", "-o", "json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["policies"][0]
    tasks, speed = report["tasks"], report["decisionSpeed"]
    if (tasks["placed"], tasks["evicted"]) != (test.placed, test.evicted):
        raise SystemExit(f"{test.name}: {tasks['placed']} placed and {tasks['evicted']} evicted in place of {test.placed} and {test.evicted}")
    return float(speed["decisions"] / speed["perSecond"])


class Server:
    """A server with the cluster and the policy of a test."""

    def __init__(self, program: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"grpc=(\S+) http=(\S+)", line)
            if found:
                break
        else:
            raise SystemExit("the server has not started")
        for arguments in (["state", "load", str(folder / "cluster.json")], ["policy", "push", str(folder / "policy.yaml")]):
            subprocess.run([program, *arguments, "--server", found[1]], check=True, capture_output=True)
        self.connection = http.client.HTTPConnection(found[2])

    def call(self, method: str, request: Record) -> Record:
        """One call as JSON."""
        self.connection.request("POST", f"/pumice.v1.{method}", json.dumps(request), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{method}: {body}")
        return body

    def end(self) -> None:
        """Stops the server."""
        self.process.terminate()
        self.process.wait()


def in_calls(program: str, test: Test, folder: Path) -> float:
    """Seconds from the first to the last response."""
    server = Server(program, folder)
    try:
        placed, sequence, epoch = 0, 1, str(time.time_ns())
        if test.arriving:
            batch = {"source": "jobs", "sourceEpoch": epoch, "sequence": "1", "kind": "BATCH_KIND_FULL_SYNC_LAST", "part": 1, "put": {}}
            server.call("StateService/Apply", {"batch": batch})
        began = time.perf_counter()
        for at, names in enumerate(test.calls):
            if test.arriving:
                sequence += 1
                objects = {"kind": "List", "apiVersion": "v1", "items": test.arriving[at]}
                batch = {"source": "jobs", "sourceEpoch": epoch, "sequence": str(sequence), "kind": "BATCH_KIND_DELTA", "put": {"objects": [encoded(objects)]}}
                server.call("StateService/Apply", {"batch": batch})
            response = server.call("DecisionService/Place", {"groups": [{"names": names}], "effect": "PLACE_EFFECT_COMMIT", "commitKey": f"scale/{at}"})
            placed += len(names) if "commit" in response else 0
        took = time.perf_counter() - began
    finally:
        server.end()
    if placed != test.placed:
        raise SystemExit(f"{test.name}: {placed} placed by calls in place of {test.placed}")
    return took


def encoded(value: object) -> str:
    """JSON of objects as bytes of protobuf JSON."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def shown(seconds: float | None) -> str:
    """Seconds or milliseconds with three digits."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"


def machine(program: str) -> str:
    """Date, program and machine of the measurement."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"Measured on {now:%Y-%m-%d}: {version}, revision {commit}, {os.cpu_count()} cores of {models[0] if models else platform.machine()}, Linux {platform.release()}."


def main() -> int:
    """Runs the tests."""
    parser = argparse.ArgumentParser(description="Repeat KAI's published scale tests as decisions.")
    parser.add_argument("program")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    program = str(Path(chosen.program).resolve())
    if chosen.write and (chosen.nodes != 500 or chosen.only or "/debug/" in program):
        raise SystemExit("--write needs all tests, 500 nodes and an optimised program")
    rows = ["| KAI's test | Jobs | KAI | Pumice: cycles | Pumice: calls |", "|---|---|---:|---:|---:|"]
    for test in tests(chosen.nodes):
        if chosen.only not in test.name:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": test.records}), encoding="utf-8")
            (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
            cycles = None if test.arriving else statistics.median(in_cycles(program, test, folder) for _ in range(chosen.runs))
            calls = statistics.median(in_calls(program, test, folder) for _ in range(chosen.runs)) if test.calls else None
        rows.append(f"| {test.name} | {test.shape} | {test.published} | {shown(cycles)} | {shown(calls)} |")
        print(rows[-1], flush=True)
    if chosen.write:
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        tail = rest.split(END)[1]
        table = "\n".join(rows)
        PAGE.write_text(f"{head}{BEGIN}{machine(program)} Medians of {chosen.runs} runs.\n\n{table}\n{END}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
