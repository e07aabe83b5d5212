"""The programs of the walk: etcd, the API server, vc-scheduler and Pumice, on free ports of 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

SCHEDULER_USER = "volcano-scheduler"


def free_port() -> int:
    """A port that nobody listens on now."""
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what: str, holds: Callable[[], object], seconds: float = 120, pause: float = 0.1) -> object:
    """Wait until `holds` returns something true, and return that."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            result = holds()
            if result:
                return result
        if time.monotonic() > end:
            raise TimeoutError(f"within {seconds:.0f} s it did not come that {what}")
        time.sleep(pause)


class Program:
    """A process that was started here, in a group of its own."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str] | None = None):
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | (environment or {}),
            )

    def running(self) -> bool:
        return self.process.poll() is None

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the group, and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as the kubelet does."""
        self.end(signal.SIGTERM)

    def lines(self, *words: str, after: int = 0) -> list[str]:
        """Lines of its log with all these words, from a position in bytes on."""
        with self.log.open("rb") as log:
            log.seek(after)
            text = log.read().decode(errors="replace")
        return [line for line in text.splitlines() if all(word in line for word in words)]

    def position(self) -> int:
        """The present length of its log."""
        return self.log.stat().st_size


def page(address: str) -> str:
    """The text of a page of metrics or health."""
    with urllib.request.urlopen(address, timeout=5) as response:
        return response.read().decode()


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of a metric over all series with these labels."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith((name + "{", name + " ")) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            total += float(line.split("}")[-1].split()[0] if "}" in line else line.split()[1])
    return total


class ControlPlane:
    """etcd and kube-apiserver, with RBAC: the scheduler has a user of its own."""

    def __init__(self, folder: Path, programs: Path):
        self.folder, self.programs = folder, programs
        folder.mkdir(parents=True, exist_ok=True)
        self.running: list[Program] = []
        self.port = free_port()
        self.tokens = {user: secrets.token_hex(16) for user in ("admin", SCHEDULER_USER)}
        (folder / "tokens.csv").write_text(
            f'{self.tokens["admin"]},admin,admin,"system:masters"\n{self.tokens[SCHEDULER_USER]},{SCHEDULER_USER},{SCHEDULER_USER}\n'
        )
        self._certificates()
        self.kubeconfig = self._kubeconfig(SCHEDULER_USER)
        # For whoever looks around with kubectl.
        self._kubeconfig("admin")
        self._start()

    def start(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> Program:
        program = Program(name, self.folder, command, environment)
        self.running.append(program)
        return program

    def end(self) -> None:
        for program in reversed(self.running):
            program.kill()

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def _certificates(self) -> None:
        self._openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            "authority.key",
            "-out",
            "authority.crt",
            "-subj",
            "/CN=walk",
            "-days",
            "30",
        )
        self._openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
            "-subj",
            "/CN=kube-apiserver",
        )
        (self.folder / "server.ext").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n"
        )
        self._openssl(
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "authority.crt",
            "-CAkey",
            "authority.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "server.ext",
            "-out",
            "server.crt",
        )
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def _kubeconfig(self, user: str) -> Path:
        made = self.folder / f"{user}.kubeconfig"
        made.write_text(f"""apiVersion: v1
kind: Config
current-context: walk
clusters:
- name: walk
  cluster: {{server: "https://127.0.0.1:{self.port}", certificate-authority: {self.folder}/authority.crt}}
users: [{{name: {user}, user: {{token: "{self.tokens[user]}"}}}}]
contexts: [{{name: walk, context: {{cluster: walk, user: {user}}}}}]
""")
        return made

    def _start(self) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.start(
            "etcd",
            [
                str(self.programs / "etcd"),
                "--name",
                "walk",
                "--data-dir",
                str(self.folder / "etcd"),
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"walk={peer}",
                "--unsafe-no-fsync",
                "--log-level",
                "warn",
            ],
        )
        until("etcd is healthy", lambda: page(client + "/health"))
        path = lambda name: str(self.folder / name)
        self.start(
            "kube-apiserver",
            [
                str(self.programs / "kube-apiserver"),
                "--etcd-servers",
                client,
                "--bind-address",
                "127.0.0.1",
                "--advertise-address",
                "127.0.0.1",
                "--secure-port",
                str(self.port),
                "--tls-cert-file",
                path("server.crt"),
                "--tls-private-key-file",
                path("server.key"),
                "--cert-dir",
                path("generated"),
                "--token-auth-file",
                path("tokens.csv"),
                "--anonymous-auth=false",
                "--authorization-mode",
                "RBAC",
                "--service-account-issuer",
                "https://kubernetes.default.svc",
                "--service-account-key-file",
                path("accounts.pub"),
                "--service-account-signing-key-file",
                path("accounts.key"),
                # Nobody removes the taint that every new node would get, and nobody makes accounts.
                "--service-cluster-ip-range",
                "10.0.0.0/24",
                "--disable-admission-plugins",
                "ServiceAccount,TaintNodesByCondition",
                "--endpoint-reconciler-type",
                "none",
                "--profiling=false",
            ],
        )
