"""Programs that the checks run, and where the repository is."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# CHART: the archive of a release in its place.
CHART = Path(os.environ.get("CHART", DEPLOY / "helm" / "pumice"))
# Version that Helm assumes where it asks no cluster.
KUBE_VERSION = ("--kube-version", "v1.37.2")
# The chart asks how callers connect.
SELF_SIGNED = ("--set", "tls.selfSigned=true")
PLAIN = ("--set", "settings.insecure=true")
EXAMPLE_POLICY = ROOT / "examples" / "proportional.yaml"


def run(
    *command: str | Path, env: dict[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; the error of one that fails has its output."""
    done = subprocess.run(
        [str(part) for part in command], env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def documents(text: str) -> list[Object]:
    """Objects of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def until(what: str, holds: Callable[[], Any], seconds: float = 30.0) -> Any:
    """First true value of a condition, which is asked again and again."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if value := holds():
                return value
        except (OSError, AssertionError) as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}: {last}")


def render_chart(*options: str, connect: tuple[str, ...] = SELF_SIGNED) -> list[Object]:
    """Objects of the chart, as Helm renders them."""
    values = [*KUBE_VERSION, *connect, *options]
    shown = run(os.environ["HELM"], "template", "pumice", CHART, "--namespace", "pumice", *values)
    return documents(shown.stdout)


def kustomize(folder: Path) -> list[Object]:
    """Objects of a kustomization."""
    return documents(run(os.environ["KUSTOMIZE"], "build", "--load-restrictor", "LoadRestrictionsNone", folder).stdout)


def find(objects: list[Object], kind: str, name: str | None = None) -> Object:
    """The one object of a kind, or of a kind and a name."""
    found = [
        item
        for item in objects
        if item["kind"] == kind and (name is None or re.fullmatch(name, item["metadata"]["name"]))
    ]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def containers(deployment: Object) -> Iterator[Object]:
    """Containers of a Deployment, with those that start first."""
    pod = deployment["spec"]["template"]["spec"]
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def compiled_files() -> set[str]:
    """Files of the repository that the server is compiled from, as cargo lists them."""
    listed = (ROOT / "target" / "debug" / "pumice.d").read_text().split(": ", 1)[1].split()
    # A crate reaches files of the root by links of its own.
    files = {Path(name).resolve() for name in listed}
    compiled = {str(file.relative_to(ROOT)) for file in files if file.is_file() and file.is_relative_to(ROOT)}
    compiled = {name for name in compiled if not name.startswith("target/")}
    assert len(compiled) > 100, "cargo lists few files"
    return compiled
