"""The real server as a process of its own, on free ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("PUMICE_BIN", ROOT / "target" / "debug" / "pumice"))


class Server:
    """`pumice serve`; `address` and `socket` say where."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """Starts it, and waits until it says where it serves."""
        assert BINARY.exists(), f"{BINARY} is missing: run cargo build, or name it in PUMICE_BIN"
        self.socket = folder / "pumice.sock"
        command = [str(BINARY), "serve", "--http-address", "127.0.0.1:0"]
        if "--grpc-address" not in arguments:
            command += ["--grpc-address", "127.0.0.1:0"]
        command += ["--grpc-socket", str(self.socket), "--log", "info", "--log-format", "json", *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        log = self._process.stderr
        assert log is not None
        self.address = _serving(log)
        # The rest of the log is read, so that a full pipe does not hold the process up.
        self._reader = threading.Thread(target=lambda: [None for _ in log], daemon=True)
        self._reader.start()

    def pause(self) -> None:
        """Stops it where it is, as a machine does that hangs, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)
        # All of its threads have stopped then.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Lets a paused one go on."""
        self._process.send_signal(signal.SIGCONT)

    def drain(self) -> None:
        """Tells it to stop, as Kubernetes does."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ends it at once, as a crash does. A second time it does nothing."""
        if self._process.poll() is not None and not self._reader.is_alive():
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _serving(log: IO[str]) -> str:
    said = []
    for line in log:
        said.append(line)
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("message") == "serving":
            return str(entry["grpc"])
    raise AssertionError(f"it ended before it served: {said}")
