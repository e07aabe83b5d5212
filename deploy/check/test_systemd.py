"""The systemd unit: valid, hardened, and in agreement with its settings file."""

import configparser
import os
import re
from pathlib import Path

import yaml

from tools import DEPLOY, run

UNIT = DEPLOY / "systemd" / "pumice.service"
SETTINGS = DEPLOY / "systemd" / "pumice.yaml"
# systemd's own scale: 0 is no exposure, 10 is full exposure.
MOST_EXPOSURE = 1.5


def test_systemd_finds_nothing_to_say(tmp_path: Path) -> None:
    # The program has to exist where the unit says, so that the unit names the one that is here.
    unit = tmp_path / "pumice.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/pumice", os.environ["PUMICE_BIN"]))
    verified = run("systemd-analyze", "verify", unit)
    assert verified.stdout + verified.stderr == ""


def test_the_service_is_hardened() -> None:
    shown = run("systemd-analyze", "security", "--no-pager", "--offline=true", UNIT).stdout
    exposure = re.search(r"Overall exposure level for pumice.service: ([0-9.]+)", shown)
    assert exposure, shown
    assert float(exposure[1]) <= MOST_EXPOSURE, shown


def test_the_settings_agree_with_the_unit() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    read = yaml.safe_load(run(os.environ["PUMICE_BIN"], "serve", "--config", SETTINGS, "--print-config").stdout)
    written = yaml.safe_load(SETTINGS.read_text())
    assert {name: read[name] for name in written} == written
    assert read["data_dir"] == f"/var/lib/{service['StateDirectory']}"
    assert service["StateDirectoryMode"] == "0700"
    assert read["grpc_socket"].startswith(f"/run/{service['RuntimeDirectory']}/")
    assert int(service["TimeoutStopSec"]) * 1000 > read["drain_delay_ms"] + read["drain_deadline_ms"]
    files = read["connections"] + read["http_connections"] + read["scrapes"] + 128
    assert int(service["LimitNOFILE"]) >= files
