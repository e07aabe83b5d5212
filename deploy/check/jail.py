"""One container: jail.py SPEC runs its program in the mount namespace that this process was started in.

SPEC is JSON: `root` (a folder), `mounts` (a folder, its place in the root, whether it is read-only), `read_only` (of
the root), `user`, `group`, `groups`, `command`, `environment`.
"""

import ctypes
import json
import os
import subprocess
import sys

PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 40


def mount(*arguments: str) -> None:
    """The program mount, in this namespace."""
    subprocess.run(["mount", *arguments], check=True)


def main() -> None:
    """Lays out the root, gives up every right and becomes the program."""
    spec = json.loads(sys.argv[1])
    root = spec["root"]
    mount("--make-rprivate", "/")
    mount("--bind", root, root)
    for device in ("null", "zero", "random", "urandom"):
        place = f"{root}/dev/{device}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.exists(place):
            open(place, "w").close()
        mount("--bind", f"/dev/{device}", place)
    os.makedirs(f"{root}/proc", exist_ok=True)
    mount("--bind", "/proc", f"{root}/proc")
    for source, target, read_only in spec["mounts"]:
        place = root + target
        os.makedirs(place, exist_ok=True)
        mount("--bind", source, place)
        if read_only:
            mount("-o", "remount,bind,ro", place)
    if spec["read_only"]:
        mount("-o", "remount,bind,ro", root)
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for capability in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(spec["groups"])
    os.setgid(spec["group"])
    os.setuid(spec["user"])
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execve(spec["command"][0], spec["command"], spec["environment"])


main()
