"""What the checks share: one control plane, one image of the server, and a way to run pods."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import image as images
from cluster import ControlPlane
from kubelet import PodRun
from tools import DEPLOY, Object

RunPod = Callable[[str, Object], PodRun]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for all checks."""
    plane = ControlPlane(tmp_path_factory.mktemp("cluster"))
    yield plane
    plane.close()


@pytest.fixture(scope="session")
def server_image(tmp_path_factory: pytest.TempPathFactory) -> images.BuiltImage:
    """The server's image, by the steps of its Dockerfile."""
    return images.build(DEPLOY / "docker" / "Dockerfile", tmp_path_factory.mktemp("image"), "dev")


@pytest.fixture
def run_pod(cluster: ControlPlane, tmp_path: Path) -> Iterator[RunPod]:
    """Makes pods of a namespace run; they end with the test. Claims outlive pods."""
    pods: list[PodRun] = []

    def start(namespace: str, spec: Object) -> PodRun:
        pods.append(PodRun(cluster, namespace, spec, tmp_path / f"pod{len(pods)}", tmp_path / "claims"))
        return pods[-1]

    # Users of containers reach the folders of this test only through directories that everybody may pass.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o5 != 0o5:
            folder.chmod(folder.stat().st_mode | 0o5)
    yield start
    for pod in pods:
        pod.close()
