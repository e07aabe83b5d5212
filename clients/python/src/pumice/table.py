"""Results as rows, and nodes by slot, with and without numpy.

A function that reads a result raises ProblemError for an item with a problem: it has no rows, which does not mean
that no node fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pumice import errors, v1

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
    "best_node",
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
    """Names of slots. Within one epoch and generation a table only grows."""

    def __init__(self) -> None:
        """Makes an empty table."""
        self.epoch = 0
        self.generation = 0
        self.names: list[str] = []

    def covers(self, version: v1.NodeTableVersion) -> bool:
        """Returns whether the table has every slot of `version`."""
        return self._same(version) and version.length <= len(self.names)

    def next_slot(self, version: v1.NodeTableVersion) -> int:
        """Returns the first missing slot; 0 for another epoch or generation."""
        return len(self.names) if self._same(version) else 0

    def add(self, part: v1.GetNodeTableResponse, from_slot: int) -> None:
        """Adds a part that begins at `from_slot`."""
        if not self._same(part.table):
            self.epoch, self.generation, self.names = part.table.epoch, part.table.generation, []
        if from_slot > len(self.names):
            raise ValueError(f"slots {len(self.names)} to {from_slot - 1} are missing")
        self.names[from_slot:] = part.names

    def name(self, slot: int) -> str:
        """Returns the node of a slot."""
        return self.names[slot]

    def version(self) -> v1.NodeTableVersion:
        """Returns the version for `EvaluationRef.node_table` of a request with slots."""
        return v1.NodeTableVersion(epoch=self.epoch, generation=self.generation, length=len(self.names))

    def _same(self, version: v1.NodeTableVersion) -> bool:
        return bool(self.names) and (version.epoch, version.generation) == (self.epoch, self.generation)


def slots(nodes: v1.NodeSet) -> list[int]:
    """Returns the slots of a set: a list in its order, a bitmap from slot 0 up. A set with names is a ValueError."""
    _by_slot(nodes)
    if nodes.slots or not nodes.bitmap:
        return list(nodes.slots)
    return [byte * 8 + bit for byte, bits in enumerate(nodes.bitmap) if bits for bit in range(8) if bits >> bit & 1]


def slot_array(nodes: v1.NodeSet) -> NDArray[np.uint32]:
    """Returns `slots` as a numpy array; needs numpy."""
    import numpy as np

    _by_slot(nodes)
    if nodes.slots or not nodes.bitmap:
        return np.fromiter(nodes.slots, dtype=np.uint32, count=len(nodes.slots))
    bits = np.unpackbits(np.frombuffer(nodes.bitmap, dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint32)


def total_array(item: v1.ScoreItem) -> NDArray[np.float64]:
    """Returns the totals of a score as a numpy array; needs numpy. An item with a problem is a ProblemError."""
    import numpy as np

    errors.raise_for_problems([item])
    _check_columns(item)
    return np.fromiter(item.totals, dtype=np.float64, count=len(item.totals))


def node_names(nodes: v1.NodeSet, table: NodeTable | None = None) -> list[str]:
    """Returns the names of a set. Slots need the table of `response.metadata.node_table`; without it: ValueError."""
    if nodes.names:
        return list(nodes.names)
    found = slots(nodes)
    if found and table is None:
        raise ValueError(
            "the nodes are given by slot: their names are in client.node_table(response.metadata.node_table)"
        )
    return [] if table is None else [table.name(slot) for slot in found]


def _by_slot(nodes: v1.NodeSet) -> None:
    if nodes.names:
        raise ValueError("the nodes are given by name: ask with NODE_ENCODING_SLOTS, or read node_names")


def _check_columns(item: v1.ScoreItem) -> None:
    """Raises ValueError unless each list of scores has one entry per node."""
    nodes = item.nodes
    count = len(nodes.names) or len(nodes.slots) or sum(byte.bit_count() for byte in nodes.bitmap)
    for what, scores in (("totals", item.totals), *((f"scores of {part.plugin}", part.scores) for part in item.parts)):
        if len(scores) != count:
            raise ValueError(f"the item has {count} nodes and {len(scores)} {what}")


class ScoreRow(NamedTuple):
    """Score of a node for a task; `parts` by `plugin` or `plugin/part`."""

    task: int
    node: str
    total: float
    parts: dict[str, float]


def score_rows(result: v1.ScoreResult, table: NodeTable | None = None) -> Iterator[ScoreRow]:
    """Yields one row per task and node, in the order of the result."""
    errors.raise_for_problems(result.items)
    for task, item in enumerate(result.items):
        _check_columns(item)
        parts = [(f"{part.plugin}/{part.part}" if part.part else part.plugin, part) for part in item.parts]
        for column, node in enumerate(node_names(item.nodes, table)):
            yield ScoreRow(task, node, item.totals[column], {name: part.scores[column] for name, part in parts})


def fitting(result: v1.FilterResult, table: NodeTable | None = None) -> list[list[str]]:
    """Returns, per task, the nodes that passed. A result that leaves nodes out is a ValueError."""
    errors.raise_for_problems(result.items)
    lists = []
    for item in result.items:
        names = node_names(item.fit, table)
        if len(names) != item.fit_count:
            raise ValueError(
                f"{item.fit_count} nodes fit, {len(names)} are named: ask with FILTER_DETAIL_NODES and without limit"
            )
        lists.append(names)
    return lists


def best_node(item: v1.ScoreItem, table: NodeTable | None = None) -> str | None:
    """Returns the node with the highest total, the first of several; None: no node has a score.

    An item with a problem is a ProblemError; nodes that fit, and that a limit of 0 left out, are a ValueError.
    """
    errors.raise_for_problems([item])
    _check_columns(item)
    if not item.totals and item.filter.fit_count:
        raise ValueError(f"{item.filter.fit_count} nodes fit and the item has no score: ask with a limit above 0")
    best = None
    highest = 0.0
    for name, total in zip(node_names(item.nodes, table), item.totals, strict=True):
        if best is None or total > highest:
            best, highest = name, total
    return best


class RejectionRow(NamedTuple):
    """Nodes that were rejected for a task for one reason, and one of them as a sample."""

    task: int
    plugin: str
    code: str
    message: str
    nodes: int
    eviction_may_help: bool
    sample: str


def rejection_rows(result: v1.FilterResult) -> Iterator[RejectionRow]:
    """Yields one row per task and reason."""
    errors.raise_for_problems(result.items)
    for task, item in enumerate(result.items):
        for rejection in item.rejections:
            reason = rejection.reason
            sample = rejection.samples[0].node if rejection.samples else ""
            helps = reason.resolution == v1.RESOLUTION_UNSCHEDULABLE
            yield RejectionRow(task, reason.plugin, reason.code, reason.message, rejection.count, helps, sample)


class PlaceRow(NamedTuple):
    """Node of one task of a group; `pipelined`: the task waits for resources that are being released."""

    group: int
    task: int
    node: str
    pipelined: bool
    card: str


def place_rows(result: v1.PlaceResult, table: NodeTable | None = None) -> Iterator[PlaceRow]:
    """Yields one row per placed task: none if the job was not placed, however far the server got."""
    errors.raise_for_problems(result.groups)
    if not result.placed:
        return
    for group, placed in enumerate(result.groups):
        allocated = node_names(placed.allocated, table)
        for task, node in enumerate(allocated + node_names(placed.pipelined, table)):
            card = placed.cards[task] if placed.cards else ""
            yield PlaceRow(group, task, node, task >= len(allocated), card)


class AdmitRow(NamedTuple):
    """Admit result of a job or a task; `reasons` are messages, `headroom` None: unlimited."""

    item: int
    permitted: bool
    reasons: list[str]
    cards: list[str]
    headroom: int | None


def admit_rows(result: v1.AdmitResult) -> Iterator[AdmitRow]:
    """Yields one row per item."""
    errors.raise_for_problems(result.items)
    for number, item in enumerate(result.items):
        reasons = [reason.message for reason in item.reasons]
        headroom = item.headroom if item.HasField("headroom") else None
        yield AdmitRow(number, item.permitted, reasons, [choice.card for choice in item.cards], headroom)


class OrderRow(NamedTuple):
    """Rank of a queue or job; `keys` by plugin compare value by value, smaller first."""

    name: str
    keys: dict[str, list[float]]


def order_rows(ranks: Iterable[v1.Rank]) -> Iterator[OrderRow]:
    """Yields one row per rank (`result.queues` or `result.jobs`), first served first."""
    listed = list(ranks)
    errors.raise_for_problems(listed)
    for rank in listed:
        yield OrderRow(rank.name, {key.plugin: list(key.values) for key in rank.keys})


class VictimRow(NamedTuple):
    """Victim for a preemptor; `enough`: after its eviction the preemptor fits."""

    group: int
    victim: str
    enough: bool


def victim_rows(groups: Sequence[v1.VictimGroup], result: v1.SelectVictimsResult) -> Iterator[VictimRow]:
    """Yields one row per victim, in order; `groups` are those of the request."""
    errors.raise_for_problems(result.items)
    for number, (group, item) in enumerate(zip(groups, result.items, strict=True)):
        for gone, position in enumerate(item.victims, start=1):
            enough = item.HasField("fits_after") and gone >= item.fits_after
            yield VictimRow(number, group.candidates[position].name, enough)


def render(rows: Iterable[NamedTuple]) -> str:
    """Renders rows as an aligned text with a header."""
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
