"""JSON schemas of documents: a validator and the program agree on what is right and what is wrong."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from tools import DEPLOY, ROOT, run

GOOD_POLICIES = [
    "actions: allocate\n",
    'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n    enableJobReady: false\n  - name: binpack\n',
    "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    arguments: {binpack.weight: 3}\n"
    "pumice: {compatibility: upstream}\n",
]
WRONG_POLICIES = [
    "tiers: []\n",
    "actions: [allocate]\n",
    "actions: fly\n",
    "actions: allocate\ntiers: {}\n",
    "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    enableNodeOrder: always\n",
    "actions: allocate\npumice: {compatibility: mine}\n",
    "- actions\n",
]
GOOD_SETTINGS = [
    "",
    "reservation_lease_ms: 5s\n",
    "grpc_address: localhost:7461\nexpect_source: [a, b]\nrequest_bytes: 1Mi\n",
]
WRONG_SETTINGS = [
    "wait: 1\n",
    "reservation_lease_ms: soon\n",
    "- a\n",
    "sources: 0\n",
    "grpc_address: here\n",
    "log_format: xml\n",
]
CASE = "cluster: {nodes: [{name: a, allocatable: {cpu: 8, pods: 10}}]}\ncases:\n- name: one\n"
GOOD_CASES = [
    CASE + "  filter: {task: {requests: {cpu: 2}}}\n  expect: {fit: [a]}\n",
    CASE + "  score: {task: {requests: {cpu: 2}}}\n  expect: {best: a}\n",
]
WRONG_CASES = [
    "cases: 1\n",
    CASE + "  filter: {task: {requests: {cpu: 2}}}\n",
    CASE + "  filter: {}\n  expect: {fit: [a]}\n",
    CASE + "  filter: {task: {requests: {cpu: 2}}}\n  expect: {best: a}\n",
    CASE + "  filter: {task: {request: {cpu: 2}}}\n  expect: {fit: [a]}\n",
    CASE + "  filter: {task: {requests: {cpu: 2}}}\n  expect: {}\n",
    CASE + "  expect: {fit: [a]}\n",
]


def schema(kind: str) -> jsonschema.Draft7Validator:
    """Validator of the schema that the program prints."""
    found = json.loads(run(os.environ["PUMICE_BIN"], "schema", kind).stdout)
    jsonschema.Draft7Validator.check_schema(found)
    return jsonschema.Draft7Validator(found)


def first(text: str) -> object:
    """First document of a text."""
    return next(yaml.safe_load_all(text), None)


def accepts(file: Path, *command: str | Path) -> bool:
    """True if the program takes a document."""
    return run(os.environ["PUMICE_BIN"], *command, file, check=False).returncode == 0


def compare(kind: str, texts: dict[str, bool], folder: Path, *command: str | Path) -> None:
    """Compares the verdicts of schema and program with what they are to be."""
    validator = schema(kind)
    for number, (text, good) in enumerate(texts.items()):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        assert validator.is_valid(first(text)) == good, text
        assert accepts(file, *command) == good, text


@pytest.mark.parametrize(
    "path", sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "policies").glob("*.yaml")]), ids=str
)
def test_every_policy_of_the_tree_is_valid(path: Path) -> None:
    schema("policy").validate(first(path.read_text()))
    assert accepts(path, "policy", "check")


def test_policies(tmp_path: Path) -> None:
    texts = dict.fromkeys(GOOD_POLICIES, True) | dict.fromkeys(WRONG_POLICIES, False)
    compare("policy", texts, tmp_path, "policy", "check")


def test_settings(tmp_path: Path) -> None:
    schema("settings").validate(first((DEPLOY / "systemd" / "pumice.yaml").read_text()))
    texts = dict.fromkeys(GOOD_SETTINGS, True) | dict.fromkeys(WRONG_SETTINGS, False)
    compare("settings", texts, tmp_path, "serve", "--print-config", "--config")
    printed = run(os.environ["PUMICE_BIN"], "serve", "--print-config").stdout
    schema("settings").validate(first(printed))


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "tests").glob("*.yaml")), ids=str)
def test_every_file_of_cases_of_the_tree_is_valid(path: Path) -> None:
    schema("policy-test").validate(first(path.read_text()))


def test_files_of_cases(tmp_path: Path) -> None:
    texts = dict.fromkeys(GOOD_CASES, True) | dict.fromkeys(WRONG_CASES, False)
    compare("policy-test", texts, tmp_path, "policy", "test")
