#!/usr/bin/env python3
"""Draws the pictures of the pages: docs/pictures/overview.svg, architecture.svg, decision.svg and session.svg.

    .ci/pictures.py            write the pictures
    .ci/pictures.py --check    fail if a picture is not the one that this program draws

The arrows between crates come from the manifests: an arrow that follows from two others is left out. Each picture has
its colours for light and for dark pages.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/pictures"

# Crates without a box: they run or write others.
SUPPORT = {"test-support", "counts", "fuzz", "generator"}

STYLE = (
    "text{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#1f2328}.name{font-weight:600}.small{font-size:11.5px;fill:#59636e}"
    ".page{fill:#fff}.box{stroke-width:1.2}.program{fill:#ddf4ff;stroke:#0969da}.tool{fill:#f6f8fa;stroke:#818b98}.state{fill:#dafbe1;stroke:#1a7f37}"
    ".pure{fill:#fff1e5;stroke:#bc4c00}.line{fill:none;stroke:#59636e;stroke-width:1.4}.soft{fill:none;stroke:#59636e;stroke-width:1.2;stroke-dasharray:5 4}"
    ".head{fill:#59636e}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.program{fill:#0c2d48;stroke:#4493f8}"
    ".tool{fill:#1b2129;stroke:#656c76}.state{fill:#0f2d1a;stroke:#3fb950}.pure{fill:#3a2413;stroke:#db6d28}.line,.soft{stroke:#9198a1}.head{fill:#9198a1}}"
)


@dataclass(frozen=True)
class Box:
    """A box: its place, its kind of colour, and its lines, the first in bold."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    lines: tuple[str, ...]

    def svg(self) -> str:
        """The box with its lines, in its middle."""
        rows = [f'<rect class="box {self.kind}" x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}" rx="6"/>']
        middle, top = self.x + self.width / 2, self.y + self.height / 2 - 8.5 * (len(self.lines) - 1) + 4.5
        for at, line in enumerate(self.lines):
            kind = "name" if at == 0 else "small"
            rows.append(f'<text class="{kind}" x="{middle:g}" y="{top + 17 * at:g}" text-anchor="middle">{escape(line)}</text>')
        return "".join(rows)


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """A picture of these parts."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>\n'
        '<rect class="page" width="100%" height="100%"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def line(path: str, kind: str = "line") -> str:
    """An arrow along a path."""
    return f'<path class="{kind}" d="{path}" marker-end="url(#head)"/>'


def label(x: float, y: float, text: str, anchor: str = "start", kind: str = "small") -> str:
    """A text beside a line."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def crates() -> dict[str, set[str]]:
    """Crates with the crates that each uses; the root package is `pumice`."""
    uses: dict[str, set[str]] = {}
    for manifest in [ROOT / "Cargo.toml", *sorted(ROOT.glob("crates/*/Cargo.toml"))]:
        own = "pumice" if manifest.parent == ROOT else manifest.parent.name
        section = manifest.read_text(encoding="utf-8").split("\n[dependencies]\n", 1)[-1].split("\n[", 1)[0]
        names = {name.removeprefix("pumice-") for name in re.findall(r"^(pumice(?:-[a-z-]+)?)\b", section, re.MULTILINE)}
        if own not in SUPPORT:
            uses[own] = names - SUPPORT
    return uses


def arrows(uses: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Uses that do not follow from others."""

    def all_below(crate: str) -> set[str]:
        return uses[crate].union(*(all_below(below) for below in uses[crate]))

    return [(crate, below) for crate in uses for below in sorted(uses[crate]) if not any(below in all_below(other) for other in uses[crate] - {below})]


BOXES = {
    "lab-program": Box(16, 12, 236, 62, "program", ("pumice-lab", "lab-program: bench, tune,", "reproduce, bound")),
    "pumice": Box(296, 12, 488, 62, "program", ("pumice: command line and service (root package)", "src/cli · server · access, audit, tls · app, config, telemetry", "gRPC, JSON and extenders, limits, roles")),
    "lab": Box(16, 102, 102, 62, "tool", ("lab", "experiments,", "bounds")),
    "measurement": Box(128, 102, 130, 62, "tool", ("measurement", "bench")),
    "simulation": Box(268, 102, 124, 62, "tool", ("simulation", "simulate, demo,", "policy test")),
    "diagnosis": Box(402, 102, 106, 62, "tool", ("diagnosis", "explain,", "capacity")),
    "kubernetes-store": Box(518, 102, 150, 62, "state", ("kubernetes-store", "the log in", "ConfigMaps")),
    "etcd": Box(678, 102, 106, 62, "state", ("etcd", "the log in etcd")),
    "plot": Box(140, 196, 112, 46, "tool", ("plot", "lines as SVG")),
    "console": Box(264, 196, 180, 46, "tool", ("console", "arguments, output, files")),
    "live": Box(466, 196, 150, 46, "state", ("live", "a watched cluster")),
    "protocol": Box(140, 272, 112, 60, "tool", ("protocol", "messages,", "clients")),
    "kubernetes": Box(288, 272, 216, 60, "state", ("kubernetes", "objects and files to records")),
    "state": Box(560, 272, 224, 60, "state", ("state", "the writer, snapshots, sources,", "sessions, ledger, the log")),
    "engine": Box(140, 362, 644, 46, "pure", ("engine: no I/O, no clock, no async", "model · policy · plugins · decide · cycle · actions · devices")),
    "kernels": Box(140, 432, 644, 28, "pure", ("kernels: columns of 256 nodes",)),
}

# Where an arrow leaves and arrives, as parts of the widths, if not in the middles.
ENDS = {
    ("pumice", "simulation"): (0.06, 0.75),
    ("pumice", "diagnosis"): (0.33, 0.5),
    ("pumice", "kubernetes-store"): (0.6, 0.5),
    ("pumice", "etcd"): (0.89, 0.5),
    ("lab-program", "lab"): (0.24, 0.5),
    ("lab-program", "measurement"): (0.76, 0.5),
    ("simulation", "plot"): (0.2, 0.8),
    ("simulation", "console"): (0.6, 0.42),
    ("measurement", "console"): (0.8, 0.1),
    ("diagnosis", "console"): (0.4, 0.85),
    ("lab", "plot"): (0.75, 0.2),
    ("console", "kubernetes"): (0.6, 0.3),
    ("live", "kubernetes"): (0.3, 0.8),
    ("kubernetes-store", "live"): (0.25, 0.5),
    ("kubernetes-store", "state"): (0.8, 0.3),
    ("etcd", "state"): (0.5, 0.76),
    ("kubernetes", "engine"): (0.5, 0.4),
    ("state", "engine"): (0.5, 0.826),
}


def architecture() -> str:
    """The crates, with an arrow to each crate that one uses."""
    uses = crates()
    if set(uses) != set(BOXES):
        raise SystemExit(f"boxes and crates differ: {sorted(set(uses) ^ set(BOXES))}")
    parts = []
    for above, below in arrows(uses):
        start, end = BOXES[above], BOXES[below]
        if abs(start.y - end.y) < 1:
            left = end.x + end.width if end.x < start.x else end.x
            parts.append(line(f"M{start.x if end.x < start.x else start.x + start.width:g} {start.y + start.height / 2:g}L{left:g} {end.y + end.height / 2:g}"))
            continue
        if (above, below) == ("lab", "engine"):
            parts.append(line(f"M48 164V375Q48 385 58 385H{end.x:g}"))
            continue
        leaves, arrives = ENDS.get((above, below), (0.5, 0.5))
        x, y, to_x, to_y = start.x + start.width * leaves, start.y + start.height, end.x + end.width * arrives, end.y
        bend = (to_y - y) / 2
        parts.append(line(f"M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"))
    parts += [box.svg() for box in BOXES.values()]
    return picture(800, 472, "Crates of Pumice: an arrow leads to a crate that another one uses", parts)


def overview() -> str:
    """Pumice between policies, the state of the cluster and a scheduler."""
    boxes = [
        Box(16, 16, 190, 74, "tool", ("policy", "volcano-scheduler.conf:", "file, ConfigMap or push")),
        Box(16, 122, 190, 74, "tool", ("cluster", "nodes, pods, queues, jobs:", "watch, dump or scheduler")),
        Box(296, 16, 218, 180, "program", ("Pumice", "policies: checked, compiled,", "with versions to roll back to", "", "state of the cluster", "quota reserved for jobs")),
        Box(604, 16, 180, 180, "tool", ("your scheduler", "Filter, Score, Place, Admit,", "Order, SelectVictims", "", "binds and evicts")),
    ]
    parts = [
        line("M206 53H296"),
        label(251, 45, "document", "middle"),
        line("M206 159H296"),
        label(251, 151, "changes", "middle"),
        line("M604 84H514"),
        label(559, 76, "request", "middle"),
        line("M514 128H604"),
        label(559, 120, "result,", "middle"),
        label(559, 146, "reasons", "middle"),
    ]
    return picture(800, 212, "Policies and the state of the cluster go into Pumice; your scheduler sends requests, and binds", parts + [box.svg() for box in boxes])


def decision() -> str:
    """A decision's life: from the request to the response, and a placement's way to the next snapshot."""
    boxes = [
        Box(14, 14, 132, 62, "tool", ("your scheduler", "a gang of 1,000", "pods waits")),
        Box(206, 14, 120, 62, "program", ("front", "limits, identity,", "throttling")),
        Box(352, 14, 130, 62, "program", ("server", "query, problems,", "task classes")),
        Box(512, 14, 272, 62, "pure", ("engine::decide", "filters, scores, placement:", "256 nodes at a time, without I/O")),
        Box(560, 122, 224, 46, "state", ("latest snapshot", "cluster state and active policies")),
        Box(512, 210, 272, 64, "state", ("writer", "one thread: checks each placement", "against the newest state")),
        Box(222, 210, 180, 64, "state", ("store", "one write for all commands", "disk, etcd or ConfigMaps")),
        Box(16, 210, 118, 64, "tool", ("sources", "watch, files,", "schedulers")),
    ]
    parts = [
        line("M146 32H206"),
        label(175, 25, "request", "middle"),
        line("M326 46H352"),
        line("M482 36H512"),
        line("M512 58H482"),
        line("M672 122V76"),
        label(680, 103, "one atomic load"),
        line("M417 76V92Q417 102 407 102H85Q75 102 75 92V76"),
        label(92, 119, "response: result, metadata"),
        label(92, 134, "result is a function of state, policy and query"),
        line("M530 76V210", "soft"),
        label(522, 190, "to commit: Admit CONFIRM, Place COMMIT, CommitSession", "end"),
        line("M512 230H402"),
        label(457, 223, "draft", "middle"),
        line("M402 256H512"),
        label(457, 272, "durable", "middle"),
        line("M672 210V168"),
        label(680, 193, "publishes"),
        line("M75 274V288Q75 298 85 298H662Q672 298 672 288V274"),
        label(340, 316, "batches with changes: a full sync once, then numbered deltas", "middle"),
    ]
    return picture(800, 328, "The life of a decision", parts + [box.svg() for box in boxes])


def session() -> str:
    """A session's calls in their order: a line for each party."""
    parties = [(90, "tool", "scheduler"), (320, "program", "session"), (520, "state", "writer, store"), (710, "tool", "API server")]
    height = 560
    parts = []
    for x, kind, name in parties:
        parts.append(f'<path class="soft" d="M{x} 50V{height - 14}"/>')
        parts.append(Box(x - 68, 14, 136, 36, kind, (name,)).svg())
    rows = [
        (84, 90, 320, "OpenSession"),
        (116, 520, 320, "copy of the latest snapshot"),
        (148, 320, 90, "id, revision"),
        (200, 90, 320, "Order: which job is next?"),
        (232, 90, 320, "Place, effect SESSION, after 0"),
        (264, 320, 90, "nodes, metadata.effects"),
        (296, 90, 320, "evict (change 2), Filter, after 1"),
        (348, 90, 320, "CommitSession, after 2"),
        (380, 320, 520, "each placement"),
        (444, 520, 90, "accepted, or rejected with reasons"),
        (476, 90, 710, "bind accepted pods, evict victims"),
        (520, 710, 520, "watch: pod has its node"),
    ]
    for y, start, end, text in rows:
        parts.append(line(f"M{start + (4 if end > start else -4)} {y}H{end - (4 if end > start else -4)}"))
        middle = (start + end) / 2 if abs(start - end) < 400 else (205 if start == 90 or end == 90 else (start + end) / 2)
        parts.append(label(middle, y - 6, text, "middle"))
    parts.append(Box(340, 396, 360, 26, "state", ("",)).svg().replace('<text class="name"', '<text class="small"'))
    parts.append(label(520, 413, "checks against the newest state, one write, next snapshot", "middle"))
    parts.append(label(334, 216, "a private copy: its changes"))
    parts.append(label(334, 232, "are not visible to others"))
    parts.append(label(506, 544, "the assumption ends", "end"))
    return picture(800, height, "A session: one scheduling cycle, from OpenSession to the bind", parts)


def main(arguments: list[str]) -> int:
    """Writes or compares each picture."""
    failed = 0
    for name, draw in {"overview": overview, "architecture": architecture, "decision": decision, "session": session}.items():
        path, text = FOLDER / f"{name}.svg", re.sub(r"\n\n+", "\n", draw())
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"FAIL {path.relative_to(ROOT)}: run .ci/pictures.py")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
