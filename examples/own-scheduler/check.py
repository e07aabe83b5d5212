#!/usr/bin/env python3
"""Builds the schedulers on generated stubs, in Rust, Java and C++, and runs them with a real server and without one.

Their output is what docs/guides/own-scheduler.md shows. The tests of the clients run the schedulers in Python and Go.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
BUILT = ROOT / "target" / "own-scheduler"
PAGE = ROOT / "docs" / "guides" / "own-scheduler.md"
POLICY = ROOT / "examples" / "queues" / "policy.yaml"

sys.path.insert(0, str(ROOT / "clients" / "python" / "tests"))

from server import Server  # noqa: E402


@dataclass(frozen=True)
class Language:
    """A scheduler in one language: the tools that it needs, how it is built, and the command before the address."""

    name: str
    tools: tuple[str, ...]
    build: tuple[str, ...]
    command: tuple[str, ...]


CLUSTER = str(FOLDER / "cluster.json")
LANGUAGES = (
    Language(
        "Rust",
        ("cargo",),
        ("cargo", "build", "--locked", "--quiet", "--workspace", "--example", "own_scheduler"),
        (str(ROOT / "target" / "debug" / "examples" / "own_scheduler"),),
    ),
    Language(
        "Java",
        ("mvn", "java"),
        ("mvn", "-q", "-B", "-f", str(FOLDER / "java"), "compile", "dependency:copy-dependencies"),
        ("java", "-cp", f"{BUILT}/java/classes:{BUILT}/java/dependency/*", "OwnScheduler", CLUSTER),
    ),
    Language(
        "C++",
        ("g++", "protoc", "grpc_cpp_plugin", "pkg-config"),
        (str(FOLDER / "cpp" / "build.sh"), str(BUILT / "cpp")),
        (str(BUILT / "cpp" / "own_scheduler"), CLUSTER),
    ),
)


def run(language: Language, address: str) -> str:
    """Output of two cycles with the server of this address."""
    command = [*language.command, address]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(language: Language, page: str) -> str:
    """What is wrong; empty: nothing."""
    subprocess.run(language.build, check=True, cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), "--policy-file", str(POLICY))
        try:
            output = run(language, server.address)
        finally:
            server.stop()
        if f"```text\n{output}```" not in page:
            return f"prints something else than {PAGE.name}:\n{output}"
        output = run(language, server.address)
    lines = output.splitlines()
    if len(lines) != 2 or not all(line.startswith("no decision, the next cycle tries again") for line in lines):
        return f"does not wait for the server:\n{output}"
    return ""


def main() -> int:
    """The exit code. On a machine of CI, a language whose tools are missing fails."""
    page = PAGE.read_text(encoding="utf-8")
    failed = False
    for language in LANGUAGES:
        missing = [tool for tool in language.tools if shutil.which(tool) is None]
        if missing:
            print(f"NOT BUILT, NOT RUN: {language.name}: {', '.join(missing)} missing")
            failed = failed or bool(os.environ.get("CI"))
            continue
        problem = check(language, page)
        failed = failed or bool(problem)
        print(f"{language.name}: {problem or 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
