"""The two commands of the README, as written, in a new environment."""

from __future__ import annotations

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest
from server import ROOT, Server

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.network
def test_two_commands_to_a_first_decision(server: Server, tmp_path: Path) -> None:
    commands, shown = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.removeprefix("$ ") for line in commands.splitlines()]
    assert len(lines) == 2
    venv.create(tmp_path / "venv", with_pip=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": path, "PUMICE_SERVER": server.address, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    said = ""
    for line in lines:
        run = subprocess.run(line, shell=True, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, f"{line}: {run.stdout}{run.stderr}"
        said = run.stdout
    assert said == shown
    (installed,) = (tmp_path / "venv" / "lib").glob("python*/site-packages/pumice")
    assert (installed / "py.typed").exists()
    assert (installed / "v1" / "types_pb2.pyi").exists()
