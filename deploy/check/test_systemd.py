"""The systemd unit: valid, hardened, in agreement with its settings file, and run by systemd as it is."""

import configparser
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from machine import Machine
from tools import DEPLOY, ROOT, run, until

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


def fixed_limit(name: str) -> int:
    """A limit that is no setting, as the page of settings says."""
    row = re.search(rf"^\| `{name}` \| `([0-9]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert row, name
    return int(row[1])


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
    files = read["connections"] + fixed_limit("http_connections") + fixed_limit("scrapes") + 128
    assert int(service["LimitNOFILE"]) >= files


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the service enabled and started, as docs/install.md says."""
    folder = tmp_path_factory.mktemp("systemd")
    settings = folder / "pumice.yaml"
    commented = '# policy_file: "/etc/pumice/policy.yaml"'
    assert commented in SETTINGS.read_text()
    settings.write_text(SETTINGS.read_text().replace(commented, commented.removeprefix("# ")))
    machine = Machine(folder, Path(os.environ["PUMICE_BIN"]), settings)
    try:
        machine.write("/etc/pumice/policy.yaml", (ROOT / "examples" / "pack.yaml").read_text())
        machine.run("systemctl", "enable", "--now", "--quiet", "pumice")
        until("the service answers", lambda: machine.run("pumice", "state", "show"))
        yield machine
    finally:
        machine.close()


def test_systemd_starts_the_service_and_takes_its_rights(machine: Machine) -> None:
    assert machine.run("systemctl", "is-enabled", "pumice").stdout.strip() == "enabled"
    assert "default" in machine.run("pumice", "state", "show", "--server", "unix:/run/pumice/pumice.sock").stdout
    status = machine.run("cat", f"/proc/{machine.property('MainPID')}/status").stdout
    read = dict(line.split(":", 1) for line in status.splitlines())
    assert int(read["Uid"].split()[0]) > 1000, "a user that systemd made for it"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(read[name], 16) == 0, name
    assert read["NoNewPrivs"].strip() == "1"
    assert read["Seccomp"].strip() == "2"
    assert machine.run("stat", "--format", "%a", "/var/lib/private/pumice").stdout.strip() == "700"
    # It decides under the filter of system calls, and nothing that it was denied made it complain.
    machine.write("/root/cluster.yaml", (ROOT / "tests" / "data" / "dump.yaml").read_text())
    machine.run("pumice", "state", "load", "/root/cluster.yaml")
    assert "of 4 nodes passed" in machine.run("pumice", "filter", "--cpu", "8", "--memory", "8G").stdout
    log = machine.run("journalctl", "--unit", "pumice", "--output", "cat").stdout
    assert not re.search(r"WARN|ERROR|denied|not permitted", log), log


def test_a_reload_takes_the_policy_and_keeps_the_process(machine: Machine) -> None:
    started = machine.property("MainPID")
    spread = (ROOT / "examples" / "spread.yaml").read_text()
    machine.write("/etc/pumice/policy.yaml", spread)
    machine.run("systemctl", "reload", "pumice")
    until("the policy is in force", lambda: machine.run("pumice", "policy", "get").stdout.rstrip() == spread.rstrip())
    assert machine.property("MainPID") == started


def test_a_service_that_was_killed_comes_back_with_its_state(machine: Machine) -> None:
    machine.run("pumice", "policy", "push", "/etc/pumice/policy.yaml", "--name", "kept")
    killed = machine.property("MainPID")
    machine.run("systemctl", "kill", "--signal", "KILL", "pumice")
    until("systemd starts another process", lambda: machine.property("MainPID") not in ("0", killed))
    until("the policy is there", lambda: "kept" in machine.run("pumice", "state", "show").stdout)
    assert machine.property("NRestarts") == "1"


def test_a_stop_ends_the_service_in_order(machine: Machine) -> None:
    machine.run("systemctl", "stop", "pumice")
    assert (machine.property("ActiveState"), machine.property("Result")) == ("inactive", "success")
    machine.run("systemctl", "disable", "--quiet", "pumice")
    assert machine.run("test", "-e", "/run/pumice", check=False).returncode == 1
    assert machine.run("test", "-s", "/var/lib/private/pumice/pumice.redb").returncode == 0
