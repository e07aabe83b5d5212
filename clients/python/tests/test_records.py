"""Records of Kubernetes objects equal those of the command line's import, which stand beside the objects."""

import json
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

from pumice import kube, v1

DATA = Path(__file__).parents[3] / "tests" / "data"


def _by_name(cluster: v1.Cluster, kind: str) -> dict[str, Message]:
    return {record.name: record for record in getattr(cluster, kind)}


@pytest.mark.parametrize("kind", ["nodes", "queues", "jobs", "tasks"])
def test_records_equal_those_of_a_dump(kind: str) -> None:
    recorded = json_format.Parse((DATA / "constraints.records.json").read_text(), v1.Cluster())
    loaded = kube.cluster([json.loads((DATA / "constraints.json").read_text())])
    assert not loaded.unreadable
    want, got = _by_name(recorded, kind), _by_name(loaded.cluster, kind)
    assert want
    assert got.keys() == want.keys()
    for name, record in want.items():
        assert got[name] == record, f"{name}:\n{got[name]}\nnot\n{record}"
