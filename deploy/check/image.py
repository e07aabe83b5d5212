"""The steps of a Dockerfile, without a container engine.

A build here runs each RUN of the build stage as it is written, in the repository itself, and lays out the files that
the last stage copies. Its base image is not at hand: the libraries that the program needs come from this machine, and
the checks compare their names with those that the base has.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tools import ROOT, run

# Shared libraries of gcr.io/distroless/cc-debian12.
BASE_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libstdc++.so.6",
}


@dataclass
class BuildStage:
    """One stage of a Dockerfile: its base and its instructions."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def read_stages(dockerfile: Path) -> list[BuildStage]:
    """Stages of a Dockerfile."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    stages: list[BuildStage] = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            parts = [part for part in rest.split() if not part.startswith("--")]
            stages.append(BuildStage(parts[0], parts[2] if len(parts) > 2 else ""))
        elif stages:
            stages[-1].steps.append((word, rest))
    return stages


def copied_files(ignore: Path) -> set[str]:
    """Files of the repository that a build context has, by its ignore file."""
    patterns = [line for line in ignore.read_text().splitlines() if line and not line.startswith("#")]
    assert patterns[0] == "*", "the ignore file lists what the build may see"
    allowed = [pattern.removeprefix("!") for pattern in patterns[1:]]
    tracked = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").stdout.splitlines()
    return {
        name for name in tracked if any(name.startswith(f"{part}/") or fnmatch.fnmatch(name, part) for part in allowed)
    }


@dataclass
class BuiltImage:
    """Files of an image, and how it starts."""

    root: Path
    entrypoint: list[str]
    command: list[str]
    user: str


def libraries(program: Path) -> dict[str, Path]:
    """Shared libraries that a program needs, by name."""
    shown = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    found: dict[str, Path] = {}
    for line in shown.splitlines():
        if match := re.match(r"\s*(?:(\S+) => )?(/\S+) \(", line):
            found[Path(match[1] or match[2]).name] = Path(match[2])
    return found


def build(dockerfile: Path, folder: Path, profile: str) -> BuiltImage:
    """Runs the steps of a Dockerfile of two stages, and lays out the image."""
    first, last = read_stages(dockerfile)
    out = folder / "out"
    for word, rest in first.steps:
        if word == "RUN":
            command = re.sub(r"--mount=\S+\s*", "", rest).replace("/out", str(out))
            run("bash", "-euc", f"cd '{ROOT}'; {command}", env={"PROFILE": profile})
    image = BuiltImage(folder / "root", [], [], "")
    for word, rest in last.steps:
        if word == "COPY":
            source, target = shlex.split(rest)[-2:]
            assert source == "/out/", rest
            shutil.copytree(out, image.root / target.lstrip("/"), dirs_exist_ok=True)
        elif word == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif word == "CMD":
            image.command = json.loads(rest)
        elif word == "USER":
            image.user = rest
    add_base(image)
    return image


def add_base(image: BuiltImage) -> None:
    """Adds the libraries that the base image would have."""
    for name, path in libraries(image.root / image.entrypoint[0].lstrip("/")).items():
        assert name in BASE_LIBRARIES, f"the base image has no {name}"
        place = image.root / str(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for folder in ("etc", "proc", "dev", "tmp"):
        (image.root / folder).mkdir(exist_ok=True)
    os.chmod(image.root, 0o755)
