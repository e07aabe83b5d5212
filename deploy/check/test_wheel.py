"""The wheel: it has the server, the client and the licence, and gives a first decision in less than a minute."""

import json
import re
import sys
import time
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tools import ROOT, run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the build that is at hand."""
    out = tmp_path_factory.mktemp("wheel")
    # maturin looks for the project in the working directory.
    script = 'cd "$0" && exec "$1" -m maturin build --profile dev --out "$2"'
    run("bash", "-euc", script, ROOT, sys.executable, out)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_has_server_client_and_licence(wheel: Path) -> None:
    assert re.fullmatch(r"pumice-[0-9.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        described = message_from_string(archive.read(metadata).decode())
        (licence,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(licence).decode() == (ROOT / "LICENSE").read_text()
        (bill,) = [name for name in names if name.endswith(".cyclonedx.json")]
        assert len(json.loads(archive.read(bill))["components"]) > 100
    folder = metadata.split(".dist-info")[0]
    assert f"{folder}.data/scripts/pumice" in names
    client = {
        f"pumice/{path.relative_to(ROOT / 'clients/python/src/pumice')}"
        for path in (ROOT / "clients/python/src/pumice").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert client <= names, client - names
    assert not [name for name in names if "__pycache__" in name]
    assert described["License-Expression"] == "Apache-2.0"


def test_both_packages_agree() -> None:
    def fields(path: Path) -> list[str]:
        project = path.read_text().split("[project]")[1].split("\n[tool")[0]
        return re.findall(r'^(?:version|requires-python) = .*|^    "[a-z].*",$|^numpy = .*', project, re.MULTILINE)

    assert fields(ROOT / "pyproject.toml") == fields(ROOT / "clients/python/pyproject.toml")
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert version
    assert f'version = "{version[1]}"' in fields(ROOT / "pyproject.toml")


def test_a_first_decision_takes_less_than_a_minute(wheel: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    run(sys.executable, "-m", "venv", tmp_path)
    binaries = tmp_path / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    shown = run(binaries / "pumice", "demo", "--color", "never").stdout
    assert "gpu" in shown
    assert time.monotonic() - started < 60
    assert run(binaries / "pumice", "--version").stdout.startswith("pumice ")
    run(binaries / "python", "-c", "import pumice; pumice.task(cpu=1)")


def test_it_installs_and_decides_without_a_network(wheel: Path, tmp_path: Path) -> None:
    """As docs/tasks/upgrade.md says: what was carried over is enough."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", tmp_path, wheel)
    script = """
ip link set lo up
"$0" -m venv "$1/venv"
"$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$1" pumice
"$1/venv/bin/pumice" demo --color never
"""
    shown = run("unshare", "--net", "bash", "-euc", script, sys.executable, tmp_path).stdout
    assert " passed, 0 failed" in shown
