"""The part of a kubelet that the checks need: mounts, users, rights and probes of a pod that the API server accepted.

A container runs in namespaces of its own, with the root file system of its image. Volumes behave as the kubelet's: a
ConfigMap is a folder of links to a folder that is swapped as a whole, an empty folder belongs to root and has mode
0777, and a claim belongs to the pod's `fsGroup`.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from image import BuiltImage
from tools import Object, until

HERE = Path(__file__).resolve().parent


def write_config_map(folder: Path, data: dict[str, str]) -> None:
    """Writes the files of a ConfigMap as the kubelet does: readers see all of the old ones or all of the new ones."""
    fresh = folder / f"..{time.time_ns()}"
    fresh.mkdir(parents=True)
    fresh.chmod(0o755)
    for name, text in data.items():
        (fresh / name).write_text(text)
        (fresh / name).chmod(0o644)
    old = os.readlink(folder / "..data") if (folder / "..data").is_symlink() else None
    (folder / "..data_tmp").symlink_to(fresh.name)
    (folder / "..data_tmp").rename(folder / "..data")
    for name in data:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    if old:
        shutil.rmtree(folder / old)


class ObjectSource(Protocol):
    """The part of an API server that a kubelet reads."""

    def get(self, version: str, kind: str, name: str, namespace: str = ...) -> Object:
        """An object."""


class PodRun:
    """A pod that runs here."""

    def __init__(self, cluster: ObjectSource, namespace: str, spec: Object, folder: Path, claims: Path) -> None:
        self.cluster, self.namespace, self.spec, self.folder = cluster, namespace, spec, folder
        self.security = spec.get("securityContext", {})
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.volumes: dict[str, Path] = {
            volume["name"]: self.make_volume(volume, claims) for volume in spec.get("volumes", [])
        }
        # Holds the network of the pod, as a pause container does.
        command = "ip link set lo up && exec sleep 1000"
        self.pause = subprocess.Popen(["unshare", "--net", "sh", "-c", command])

    def make_volume(self, volume: Object, claims: Path) -> Path:
        """Makes the folder of a volume."""
        folder = self.folder / "volumes" / str(volume["name"])
        if "configMap" in volume:
            folder.mkdir(parents=True)
            folder.chmod(0o755)
            write_config_map(folder, self.config_map(volume["configMap"]["name"]))
        elif "secret" in volume:
            folder.mkdir(parents=True)
            secret = self.cluster.get("v1", "Secret", volume["secret"]["secretName"], self.namespace)
            for name, text in secret["data"].items():
                (folder / name).write_bytes(base64.b64decode(text))
                os.chown(folder / name, 0, self.security["fsGroup"])
                (folder / name).chmod(volume["secret"].get("defaultMode", 0o644))
        elif "emptyDir" in volume:
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        elif "persistentVolumeClaim" in volume:
            folder = claims / str(volume["persistentVolumeClaim"]["claimName"])
            self.own_claim(folder)
        else:
            raise AssertionError(f"a volume of a kind that the checks do not make: {volume}")
        return folder

    def own_claim(self, folder: Path) -> None:
        """Gives a claim to the pod's group. `OnRootMismatch` leaves one alone whose root has been given already."""
        group, always = self.security["fsGroup"], self.security.get("fsGroupChangePolicy") != "OnRootMismatch"
        fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if not fresh and not always:
            return
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, -1, group)
            path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o660))

    def config_map(self, name: str) -> dict[str, str]:
        """Data of a ConfigMap, as the API server has it now."""
        data: dict[str, str] = self.cluster.get("v1", "ConfigMap", name, self.namespace)["data"]
        return data

    def sync_config_maps(self) -> None:
        """Brings the mounts of ConfigMaps up to date."""
        for volume in self.spec["volumes"]:
            if "configMap" in volume:
                write_config_map(self.volumes[volume["name"]], self.config_map(volume["configMap"]["name"]))

    def start(self, container: Object, image: Path, entrypoint: list[str], extra_user: int | None = None) -> None:
        """Starts a container of the pod from the root file system of its image."""
        own = container.get("securityContext", {})
        root = self.folder / "roots" / container["name"]
        shutil.copytree(image, root, symlinks=True)
        user = own.get("runAsUser", self.security.get("runAsUser", extra_user))
        assert user, f"{container['name']} would run as root"
        groups = [self.security["fsGroup"]] if "fsGroup" in self.security else []
        spec = {
            "root": str(root),
            "mounts": [
                (str(self.volumes[mount["name"]]), mount["mountPath"], mount.get("readOnly", False))
                for mount in container.get("volumeMounts", [])
            ],
            "read_only": own.get("readOnlyRootFilesystem", False),
            "user": user,
            "group": own.get("runAsGroup", self.security.get("runAsGroup", 0)),
            "groups": groups,
            "command": [*entrypoint, *container.get("args", [])],
            "environment": {variable["name"]: variable["value"] for variable in container.get("env", [])},
        }
        log = (self.folder / f"{container['name']}.log").open("ab")
        self.running[container["name"]] = subprocess.Popen(
            [
                "nsenter",
                f"--net=/proc/{self.pause.pid}/ns/net",
                "unshare",
                "--mount",
                sys.executable,
                HERE / "jail.py",
                json.dumps(spec),
            ],
            stdout=log,
            stderr=log,
        )

    def log(self, container: str) -> str:
        """Output of a container."""
        return (self.folder / f"{container}.log").read_text()

    def inside(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a program of this machine in the network of the pod."""
        nsenter = ["nsenter", f"--net=/proc/{self.pause.pid}/ns/net"]
        return subprocess.run([*nsenter, *map(str, command)], capture_output=True, text=True, check=False, timeout=60)

    def probe(self, container: Object, probe: Object) -> bool:
        """Outcome of one probe of a container."""
        ports = {port.get("name"): port["containerPort"] for port in container.get("ports", [])}
        if "httpGet" in probe:
            port, path = probe["httpGet"]["port"], probe["httpGet"]["path"]
            arguments = [probe["httpGet"].get("scheme", "HTTP").lower(), str(ports.get(port, port)), path]
        else:
            arguments = ["grpc", str(probe["grpc"]["port"]), probe["grpc"].get("service") or ""]
        return self.inside(sys.executable, HERE / "probe.py", *arguments).returncode == 0

    def stop(self, container: str) -> float:
        """Ends a container as the kubelet does; seconds that it took, which the grace period bounds."""
        program = self.running.pop(container)
        started = time.monotonic()
        program.send_signal(signal.SIGTERM)
        program.wait(self.spec["terminationGracePeriodSeconds"])
        assert program.returncode == 0, f"{container} ended with {program.returncode}: {self.log(container)}"
        return time.monotonic() - started

    def close(self) -> None:
        """Ends what still runs."""
        for program in [*self.running.values(), self.pause]:
            program.kill()
            program.wait()


def start_server(pod: PodRun, container: Object, image: BuiltImage) -> None:
    """Starts the server's container, and waits for the probes that it has."""
    pod.start(container, image.root, image.entrypoint)
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if name in container:
            until(f"{name}: {pod.log('pumice')}", lambda name=name: pod.probe(container, container[name]))  # type: ignore[misc]
