"""A small machine with systemd as its process 1, in namespaces of this one."""

import subprocess
from pathlib import Path

from tools import DEPLOY, run, until

HERE = Path(__file__).resolve().parent
UNIT = DEPLOY / "systemd" / "pumice.service"


def unified() -> Path:
    """Where this machine has the tree of control groups that systemd needs."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise AssertionError("no cgroup2 is mounted: mount -t cgroup2 none /sys/fs/cgroup")


class Machine:
    """Runs systemd with the unit; `close` ends it and all that it started."""

    def __init__(self, folder: Path, program: Path, settings: Path) -> None:
        self.root = folder / "machine"
        self.root.mkdir()
        self.group = unified() / f"pumice-check-{folder.name}"
        self.group.mkdir()
        self.log = folder / "systemd.log"
        enter = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
        with self.log.open("wb") as log:
            self.outer = subprocess.Popen(
                [
                    *("bash", "-euc", enter, "enter", self.group),
                    *("unshare", "--pid", "--fork", "--kill-child=KILL"),
                    *("--mount", "--cgroup", "--ipc", "--uts", "--net", HERE / "machine_boot.sh"),
                    *(self.root, program, UNIT, settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until("systemd is up", self.is_up, 60)
        except AssertionError as error:
            self.close()
            raise AssertionError(f"{error}: {self.log.read_text()}") from error

    def is_up(self) -> bool:
        """True if systemd has reached its target."""
        assert self.outer.poll() is None, "the machine ended"
        return self.run("systemctl", "is-active", "multi-user.target", check=False).stdout.strip() == "active"

    def first(self) -> int:
        """Number that this machine gives systemd."""
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        assert children, "systemd has not begun"
        return int(children[0])

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a program on the machine, as root."""
        spaces = ("--mount", "--pid", "--cgroup", "--ipc", "--uts", "--net")
        return run("nsenter", "--target", str(self.first()), *spaces, "--wd=/", "--", *command, check=check)

    def write(self, place: str, text: str) -> None:
        """Writes a file of the machine."""
        target = Path(f"/proc/{self.first()}/root") / place.lstrip("/")
        target.write_text(text)
        target.chmod(0o644)

    def property(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "--value", "--property", name, "pumice").stdout.strip()

    def close(self) -> None:
        """Ends process 1, and with it all others."""
        self.outer.kill()
        self.outer.wait()
        # The group is empty once the kernel has ended them.
        until("the machine is gone", lambda: "populated 0" in (self.group / "cgroup.events").read_text())
        for below in sorted((path for path in self.group.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        self.group.rmdir()
