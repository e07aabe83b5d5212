"""Parts of a full sync: each with as many records and bytes as a server takes at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pumice import v1
from pumice._objects import with_owners

# Half of what a server takes by default (limit `request_bytes`): the rest is for the owners of pods.
PART_BYTES = 16 << 20
_RECORDS = ("nodes", "queues", "jobs", "tasks", "namespaces", "priority_classes")
_MARKS = ""


def in_parts(
    cluster: v1.Cluster, unreadable: list[v1.UnreadableRecord], most_records: int, most_bytes: int = PART_BYTES
) -> Iterator[Part]:
    """Splits records into parts of at most `most_records` and `most_bytes`, which do not count owners of pods.

    No record makes one empty part.
    """
    records = sum(len(getattr(cluster, field)) for field in _RECORDS) + len(unreadable)
    # A list has at most as many objects as fields of this name.
    objects = sum(max(text.count(b'"metadata"'), 1) for text in cluster.objects)
    if records + objects <= most_records and cluster.ByteSize() <= most_bytes:
        yield Part(cluster, unreadable)
        return
    part = Part(v1.Cluster(pod_rules=cluster.pod_rules), [])
    for addition in _additions(cluster, unreadable):
        if not part.has_room(addition, most_records, most_bytes):
            yield part
            part = Part(v1.Cluster(pod_rules=cluster.pod_rules), [])
        part.add(addition)
    yield part


class _Addition(NamedTuple):
    """Record, object or mark, with its bytes, and the owners that have to be in the same part."""

    field: str
    record: Any
    size: int
    namespace: str = ""
    owners: Sequence[bytes] = ()


class Part:
    """Records of one batch, and marks of those that cannot be read."""

    def __init__(self, put: v1.Cluster, unreadable: list[v1.UnreadableRecord]) -> None:
        """Makes a part of records and marks, or one to be filled."""
        self.put = put
        self.unreadable = unreadable
        self._records = 0
        self._bytes = 0
        self._namespaces: set[str] = set()

    def has_room(self, addition: _Addition, most_records: int, most_bytes: int) -> bool:
        """Returns whether there is room for an addition; for the first one there always is."""
        records = self._records + 1 + len(self._missing(addition))
        return self._records == 0 or (records <= most_records and self._bytes + addition.size <= most_bytes)

    def add(self, addition: _Addition) -> None:
        """Adds a record, an object or a mark, and the owners that are not here yet."""
        missing = self._missing(addition)
        if missing:
            self.put.objects.extend(missing)
            self._namespaces.add(addition.namespace)
        into: Any = self.unreadable if addition.field == _MARKS else getattr(self.put, addition.field)
        into.append(addition.record)
        self._records += 1 + len(missing)
        self._bytes += addition.size

    def _missing(self, addition: _Addition) -> Sequence[bytes]:
        return () if addition.namespace in self._namespaces else addition.owners


def _additions(cluster: v1.Cluster, unreadable: Iterable[v1.UnreadableRecord]) -> Iterator[_Addition]:
    for field in _RECORDS:
        for record in getattr(cluster, field):
            yield _Addition(field, record, record.ByteSize())
    for sent in with_owners(cluster.objects):
        yield _Addition("objects", sent.text, len(sent.text), sent.namespace, sent.owners)
    for mark in unreadable:
        yield _Addition(_MARKS, mark, mark.ByteSize())
