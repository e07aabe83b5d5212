"""The pod of a release: its chart, rendered, and its image, which run here and make a decision over TLS.

first_pod.py PROGRAM: PROGRAM is the command line of the release; HELM and CHART name the program and the archive. No
API server takes part: `make deploy` has one.
"""

import base64
import os
import sys
import tempfile
from pathlib import Path

import image as images
from kubelet import PodRun, start_server
from tools import CHART, DEPLOY, KUBE_VERSION, ROOT, Object, containers, find, render_chart, run


class RenderedObjects:
    """Objects of the chart, in place of an API server."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    def get(self, version: str, kind: str, name: str, namespace: str = "default") -> Object:
        """An object."""
        return find(self.objects, kind, name)


def main(program: str) -> None:
    """Starts the pod and asks it."""
    refused = run(os.environ["HELM"], "template", "pumice", CHART, *KUBE_VERSION, check=False)
    assert "nothing says how callers connect" in refused.stderr, refused
    objects = render_chart()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        image = images.build(DEPLOY / "docker" / "Dockerfile", folder / "image", os.environ["PROFILE"])
        deployment = find(objects, "Deployment")
        (container,) = containers(deployment)
        pod = PodRun(
            RenderedObjects(objects), "pumice", deployment["spec"]["template"]["spec"], folder, folder / "claims"
        )
        try:
            start_server(pod, container, image)
            authority = folder / "ca.crt"
            authority.write_bytes(base64.b64decode(find(objects, "Secret", "pumice-tls")["data"]["ca.crt"]))
            trust = ("--server", "https://localhost:7461", "--ca", authority, "--server-name", "pumice.pumice")
            nodes = ROOT / "tests" / "data" / "dump.yaml"
            decided = pod.inside(program, "filter", "--cpu", "8", "--with", nodes, *trust)
            assert decided.returncode == 0, f"{decided.stderr}{pod.log('pumice')}"
            print(decided.stdout.splitlines()[0])
        finally:
            pod.close()


if __name__ == "__main__":
    main(sys.argv[1])
