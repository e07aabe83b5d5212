"""A control plane on this machine: etcd and the API server, and server-side apply over HTTP."""

import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any

from tools import Object, run, until

MANAGER = "deploy-check"


class ApiError(AssertionError):
    """An answer of the API server that is an error."""


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class ControlPlane:
    """etcd and kube-apiserver; both end with `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[subprocess.Popen[bytes]] = []
        self.plurals: dict[tuple[str, str], tuple[str, bool]] = {}
        binaries = Path(os.environ["CONTROL_PLANE"])
        self.token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f'{self.token},check,check,"system:masters"\n')
        run("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
        run("openssl", "rsa", "-in", folder / "accounts.key", "-pubout", "-out", folder / "accounts.pub")
        etcd, peer, self.port = free_port(), free_port(), free_port()
        client, member = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        self.start(
            "etcd", binaries / "etcd", "--name", "check", "--data-dir", folder / "etcd",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", member,
            "--initial-advertise-peer-urls", member, "--initial-cluster", f"check={member}",
            "--unsafe-no-fsync", "--log-level", "warn",
        )  # fmt: skip
        self.start(
            "kube-apiserver", binaries / "kube-apiserver", "--etcd-servers", client, "--bind-address", "127.0.0.1",
            "--advertise-address", "127.0.0.1", "--secure-port", self.port, "--cert-dir", folder / "generated",
            "--token-auth-file", folder / "tokens.csv", "--anonymous-auth=false", "--authorization-mode", "RBAC",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", folder / "accounts.pub",
            "--service-account-signing-key-file", folder / "accounts.key",
            "--service-cluster-ip-range", "10.0.0.0/24",
            "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
            "--endpoint-reconciler-type", "none", "--profiling=false",
        )  # fmt: skip
        self.address = f"https://127.0.0.1:{self.port}"
        # The certificate is made at the start, by the server itself.
        self.tls = ssl._create_unverified_context()
        until("the API server is ready", lambda: self.call("GET", "/readyz") == "ok", 120)
        until(
            "its roles are there", lambda: self.exists("rbac.authorization.k8s.io/v1", "ClusterRole", "cluster-admin")
        )
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self.client_config(self.token)))

    def client_config(self, token: str) -> Object:
        """Kubeconfig of a user with this token."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "check",
            "clusters": [{"name": "check", "cluster": {"server": self.address, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "check", "user": {"token": token}}],
            "contexts": [{"name": "check", "context": {"cluster": "check", "user": "check"}}],
        }

    def start(self, name: str, *command: object) -> None:
        """Starts a program with its output in a file."""
        log: IO[bytes] = (self.folder / f"{name}.log").open("wb")
        self.programs.append(subprocess.Popen([str(part) for part in command], stdout=log, stderr=log))

    def close(self) -> None:
        """Ends the programs, the API server first."""
        for program in reversed(self.programs):
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """One request; the answer is JSON where it can be read as that."""
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=30) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            raise ApiError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text.startswith("{") else text

    def path(self, version: str, kind: str, name: str, namespace: str = "default") -> str:
        """Path of an object."""
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self.plurals:
            for resource in self.call("GET", base)["resources"]:
                if "/" not in resource["name"]:
                    self.plurals[version, resource["kind"]] = resource["name"], resource["namespaced"]
        assert (version, kind) in self.plurals, f"the API server knows no {version} {kind}"
        plural, namespaced = self.plurals[version, kind]
        return f"{base}/namespaces/{namespace}/{plural}/{name}" if namespaced else f"{base}/{plural}/{name}"

    def path_of(self, item: Object) -> str:
        """Path of an object that is at hand."""
        metadata = item["metadata"]
        return self.path(item["apiVersion"], item["kind"], metadata["name"], metadata.get("namespace", "default"))

    def exists(self, version: str, kind: str, name: str) -> bool:
        """True if an object without a namespace is there."""
        try:
            self.call("GET", self.path(version, kind, name))
        except ApiError:
            return False
        return True

    def apply(self, item: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply. A field that the API server does not know is an error."""
        query = f"?fieldManager={MANAGER}&fieldValidation=Strict&force=true" + ("&dryRun=All" if dry_run else "")
        applied: Object = self.call("PATCH", self.path_of(item) + query, item, "application/apply-patch+yaml")
        return applied

    def get(self, version: str, kind: str, name: str, namespace: str = "default") -> Object:
        """An object."""
        found: Object = self.call("GET", self.path(version, kind, name, namespace))
        return found

    def namespace(self, name: str) -> None:
        """Makes a namespace."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
