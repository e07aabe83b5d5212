"""Licences of others: the files have every text, and a licence that nobody decided about is refused."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tools import DEPLOY, ROOT


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    """The program that writes the files."""
    spec = importlib.util.spec_from_file_location("licences", DEPLOY / "supply" / "licences.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_that_a_crate_carries_has_its_notice() -> None:
    """The allocator is a C library inside a crate of other authors."""
    text = (ROOT / "THIRD-PARTY-LICENSES.txt").read_text()
    assert "libmimalloc-sys" in text
    assert "Microsoft Corporation, Daan Leijen" in text


def test_texts_below_a_crate_count_and_those_of_its_tests_do_not(licences: ModuleType, tmp_path: Path) -> None:
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "c_src/LICENSE", "tests/LICENSE"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert licences.crate_texts(tmp_path, "MIT") == ["LICENSE-MIT", "c_src/LICENSE"]


def test_a_licence_that_nobody_accepted_is_refused(licences: ModuleType, tmp_path: Path) -> None:
    accepted = tmp_path / "LICENSE"
    accepted.write_text("Permission is hereby granted,\nfree of charge, to any person")
    notice = tmp_path / "NOTICE"
    notice.write_text("Made by somebody.")
    assert licences.licences_of("one", [accepted, notice]) == "MIT"
    other = tmp_path / "LICENSE.other"
    other.write_text("Mozilla Public License Version 2.0")
    with pytest.raises(licences.LicenceError, match=r"one: .*LICENSE.other is none of"):
        licences.licences_of("one", [accepted, other])
    with pytest.raises(licences.LicenceError, match="no file"):
        licences.licences_of("one", [notice])


def test_every_module_that_the_scheduler_requires_is_listed() -> None:
    """A module of go.mod is in the file, unless none of its packages is in the program."""
    text = (ROOT / "clients/go/kubescheduler/THIRD-PARTY-LICENSES.txt").read_text()
    for module in ("k8s.io/kubernetes v", "google.golang.org/grpc v", "the standard library of Go: BSD-3-Clause"):
        assert f"\n{module}" in text, module
