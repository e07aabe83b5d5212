"""The facts of a walk: each is checked once, and printed with its evidence."""

from __future__ import annotations

import time
from pathlib import Path


class Facts:
    """Collects checked facts, as rows of a table."""

    def __init__(self, folder: Path):
        self.began = time.monotonic()
        self.table = folder / "facts.md"
        self.failed = 0
        self.table.write_text("| | Fact | Evidence |\n|---|---|---|\n")

    def step(self, name: str) -> None:
        print(f"\n== {name} ({time.monotonic() - self.began:.0f} s)", flush=True)

    def check(self, fact: str, holds: object, evidence: object = "") -> None:
        """Record a fact; a false one does not end the walk."""
        evidence = str(evidence).strip()
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'}  {fact}\n        {evidence}", flush=True)
        cells = (text.replace("|", "\\|").replace("\n", " ") for text in (fact, evidence))
        with self.table.open("a") as table:
            table.write(f"| {'ok' if holds else '**FAIL**'} | {' | '.join(cells)} |\n")
