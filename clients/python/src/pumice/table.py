"""Answers as rows, and nodes by slot: with and without numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pumice import v1

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "AdmitRow",
    "NodeTable",
    "OrderRow",
    "PlaceRow",
    "RejectionRow",
    "ScoreRow",
    "VictimRow",
    "admit_rows",
    "fitting",
    "node_names",
    "order_rows",
    "place_rows",
    "rejection_rows",
    "render",
    "score_rows",
    "slot_array",
    "slots",
    "total_array",
    "victim_rows",
]


class NodeTable:
    """The names of slots. Within one epoch and generation it only grows."""

    def __init__(self) -> None:
        """An empty table, of no server."""
        self.epoch = 0
        self.generation = 0
        self.names: list[str] = []

    def covers(self, version: v1.NodeTableVersion) -> bool:
        """Every slot of `version` has its name here."""
        return self._same(version) and version.length <= len(self.names)

    def next_slot(self, version: v1.NodeTableVersion) -> int:
        """The first slot that is missing; 0 if the table is another one."""
        return len(self.names) if self._same(version) else 0

    def add(self, stretch: v1.GetNodeTableResponse, from_slot: int) -> None:
        """Takes in a stretch that begins at `from_slot`."""
        if not self._same(stretch.table):
            self.epoch, self.generation, self.names = stretch.table.epoch, stretch.table.generation, []
        if from_slot > len(self.names):
            raise ValueError(f"slots {len(self.names)} to {from_slot - 1} are missing")
        self.names[from_slot:] = stretch.names

    def name(self, slot: int) -> str:
        """The node of a slot."""
        return self.names[slot]

    def version(self) -> v1.NodeTableVersion:
        """What a question with slots names in `Ground.node_table`."""
        return v1.NodeTableVersion(epoch=self.epoch, generation=self.generation, length=len(self.names))

    def _same(self, version: v1.NodeTableVersion) -> bool:
        return bool(self.names) and (version.epoch, version.generation) == (self.epoch, self.generation)


def slots(nodes: v1.NodeSet) -> list[int]:
    """The slots of a set: in the stated order, or those of a bitmap from 0 up."""
    if nodes.slots or not nodes.bitmap:
        return list(nodes.slots)
    return [byte * 8 + bit for byte, bits in enumerate(nodes.bitmap) if bits for bit in range(8) if bits >> bit & 1]


def slot_array(nodes: v1.NodeSet) -> NDArray[np.uint32]:
    """The same as a numpy array; needs numpy."""
    import numpy as np

    if nodes.slots or not nodes.bitmap:
        return np.fromiter(nodes.slots, dtype=np.uint32, count=len(nodes.slots))
    bits = np.unpackbits(np.frombuffer(nodes.bitmap, dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint32)


def total_array(item: v1.ScoreItem) -> NDArray[np.float64]:
    """The totals of a score as a numpy array; needs numpy."""
    import numpy as np

    return np.fromiter(item.totals, dtype=np.float64, count=len(item.totals))


def node_names(nodes: v1.NodeSet, table: NodeTable | None = None) -> list[str]:
    """The names of a set; with slots, by the table that the answer's stamp names."""
    if nodes.names:
        return list(nodes.names)
    found = slots(nodes)
    if found and table is None:
        raise ValueError("the nodes are slots: the names are in the node table")
    return [] if table is None else [table.name(slot) for slot in found]


class ScoreRow(NamedTuple):
    """A node's score for a task; `parts` by `plugin` or `plugin/part`."""

    task: int
    node: str
    total: float
    parts: dict[str, float]


def score_rows(result: v1.ScoreResult, table: NodeTable | None = None) -> Iterator[ScoreRow]:
    """One row per task and node, in the order of the answer."""
    for task, item in enumerate(result.items):
        parts = [(f"{part.plugin}/{part.part}" if part.part else part.plugin, part) for part in item.parts]
        for column, node in enumerate(node_names(item.nodes, table)):
            total = item.totals[column] if item.totals else 0.0
            yield ScoreRow(task, node, total, {name: part.scores[column] for name, part in parts})


def fitting(result: v1.FilterResult, table: NodeTable | None = None) -> list[list[str]]:
    """Per task the nodes that passed."""
    return [node_names(item.fit, table) for item in result.items]


class RejectionRow(NamedTuple):
    """Nodes that were refused to a task for one reason, one of them with its figures."""

    task: int
    plugin: str
    code: str
    message: str
    nodes: int
    eviction_may_help: bool
    sample: str


def rejection_rows(result: v1.FilterResult) -> Iterator[RejectionRow]:
    """One row per task and reason."""
    for task, item in enumerate(result.items):
        for rejection in item.rejections:
            reason = rejection.reason
            sample = rejection.samples[0].node if rejection.samples else ""
            helps = reason.resolution == v1.RESOLUTION_UNSCHEDULABLE
            yield RejectionRow(task, reason.plugin, reason.code, reason.message, rejection.count, helps, sample)


class PlaceRow(NamedTuple):
    """Where one task of a group goes; `pipelined`: once what is there has gone."""

    group: int
    task: int
    node: str
    pipelined: bool
    card: str


def place_rows(result: v1.PlaceResult, table: NodeTable | None = None) -> Iterator[PlaceRow]:
    """One row per placed task."""
    for group, placed in enumerate(result.groups):
        allocated = node_names(placed.allocated, table)
        for task, node in enumerate(allocated + node_names(placed.pipelined, table)):
            card = placed.cards[task] if placed.cards else ""
            yield PlaceRow(group, task, node, task >= len(allocated), card)


class AdmitRow(NamedTuple):
    """A verdict on a job or a task; `reasons` are its messages, `headroom` None without a limit."""

    item: int
    permitted: bool
    reasons: list[str]
    cards: list[str]
    headroom: int | None


def admit_rows(result: v1.AdmitResult) -> Iterator[AdmitRow]:
    """One row per item; one with a problem is not permitted."""
    for number, item in enumerate(result.items):
        reasons = [reason.message for reason in item.reasons]
        if item.HasField("problem"):
            reasons.insert(0, f"{item.problem.field}: {item.problem.message}")
        headroom = item.headroom if item.HasField("headroom") else None
        yield AdmitRow(number, item.permitted, reasons, [choice.card for choice in item.cards], headroom)


class OrderRow(NamedTuple):
    """A queue or job in its place; `keys` by plugin, to be compared value by value, smaller first."""

    name: str
    keys: dict[str, list[float]]


def order_rows(ranks: Iterable[v1.Rank]) -> Iterator[OrderRow]:
    """One row per rank (`result.queues` or `result.jobs`), first served first; those with a problem are left out."""
    for rank in ranks:
        if not rank.HasField("problem"):
            yield OrderRow(rank.name, {key.plugin: list(key.values) for key in rank.keys})


class VictimRow(NamedTuple):
    """Who goes for a preemptor; `enough`: with this one gone it fits."""

    group: int
    victim: str
    enough: bool


def victim_rows(groups: Sequence[v1.VictimGroup], result: v1.SelectVictimsResult) -> Iterator[VictimRow]:
    """One row per victim, in order; `groups` are those of the question."""
    for number, (group, item) in enumerate(zip(groups, result.items, strict=True)):
        for gone, position in enumerate(item.victims, start=1):
            enough = item.HasField("fits_after") and gone >= item.fits_after
            yield VictimRow(number, group.candidates[position].name, enough)


def render(rows: Iterable[NamedTuple]) -> str:
    """Rows as an aligned text with a head line."""
    listed = list(rows)
    if not listed:
        return ""
    lines = [[name.upper() for name in listed[0]._fields]]
    lines += [[_cell(value) for value in row] for row in listed]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ", ".join(_cell(entry) for entry in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
