"""A walk with a cluster, a program and docs/start.md: the page's commands, in its order, word for word."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import ControlPlane, free_port
from tools import DEPLOY, ROOT, Object, documents, run, until

PAGE = (ROOT / "docs" / "start.md").read_text()
# Seconds that the walk may take.
FOR_A_DECISION = 60
# Folders of the repository that the commands read.
FOLDERS = ("examples", "tests")


def commands(heading: str) -> list[str]:
    """Commands of a section of the page, in its order."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    assert found, heading
    return found


def create(cluster: ControlPlane, item: Object) -> None:
    """Makes an object with its state, as a kubelet and Volcano's controllers leave it."""
    metadata = {
        name: item["metadata"][name]
        for name in ("name", "namespace", "labels", "annotations", "ownerReferences")
        if name in item["metadata"]
    }
    if "namespace" in metadata:
        cluster.namespace(metadata["namespace"])
    made = {**item, "metadata": metadata}
    if item["kind"] == "Pod":
        # The API server takes the priority of a pod from its class only.
        made["spec"] = {name: value for name, value in item["spec"].items() if name != "priority"}
    cluster.apply(made)
    if item["kind"] == "Pod":
        path = f"{cluster.path_of(made)}/status"
        cluster.call("PATCH", path, {"status": item["status"]}, "application/merge-patch+json")


@pytest.fixture(scope="module")
def volcano(cluster: ControlPlane) -> ControlPlane:
    """A cluster with Volcano's kinds, its policy, and the records of the small cluster of the pages."""
    for item in documents((DEPLOY / "check" / "volcano_kinds.yaml").read_text()):
        cluster.apply(item)
    for kind in ("Queue", "PodGroup"):
        until(kind, lambda kind=kind: cluster.path("scheduling.volcano.sh/v1beta1", kind, "x"))  # type: ignore[misc]
    cluster.namespace("volcano-system")
    data = {"volcano-scheduler.conf": (ROOT / "examples" / "proportional.yaml").read_text()}
    name = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})
    for item in yaml.safe_load((ROOT / "tests" / "data" / "dump.yaml").read_text())["items"]:
        create(cluster, item)
    return cluster


@pytest.fixture
def shell(cluster: ControlPlane, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a shell with the program, a server of its own, and kubectl for the cluster."""
    grpc, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    program = Path(os.environ["PUMICE_BIN"])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pumice").symlink_to(program)
    server = subprocess.Popen(
        [program, "serve", "--grpc-address", grpc, "--http-address", http], stderr=subprocess.DEVNULL
    )
    yield {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "PUMICE_SERVER": f"http://{grpc}",
    }
    server.terminate()
    server.wait(30)


def test_five_minutes_to_a_decision(volcano: ControlPlane, shell: dict[str, str], tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).symlink_to(ROOT / folder)
    first, *walked = commands("Your own cluster")
    assert first.endswith(" serve")
    until("the server answers", lambda: run("pumice", "state", "show", env=shell))
    started = time.monotonic()
    shown = {}
    for command in walked:
        done = run("bash", "-euo", "pipefail", "-c", f"cd '{tmp_path}'; {command}", env=shell, check=False)
        # "No" is a result as well: no node of this cluster has eight free GPUs.
        assert done.returncode == 0 or (done.returncode, "refused:" in done.stdout + done.stderr) == (1, True), done
        shown[command] = done.stdout
        if command.startswith("pumice filter"):
            print(f"the first decision after {time.monotonic() - started:.1f} s")
            assert time.monotonic() - started < FOR_A_DECISION
    said = {command.split(" #")[0].strip(): text for command, text in shown.items()}
    assert "2 of 4 nodes passed" in said["pumice filter --cpu 8 --memory 8G"]
    assert "proportional of resource nvidia.com/gpu check failed" in said["pumice filter --cpu 8 --memory 8G"]
    assert "gpu-1" in said["pumice score --task train/bert-worker-1"]
