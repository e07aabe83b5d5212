#!/usr/bin/env python3
"""Writes the table of the Grafana dashboard's panels into docs/reference/dashboard.md.

    .ci/dashboard.py            write the table
    .ci/dashboard.py --check    fail if the page has another table
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "deploy/helm/pumice/monitoring/dashboard.json"
PAGE = ROOT / "docs/reference/dashboard.md"
BEGIN, END = "<!-- panels: written by .ci/dashboard.py -->\n", "<!-- end of panels -->"


def table() -> str:
    """The panels, row by row: title, form, what it shows and its metrics."""
    rows, group = ["| Row | Panel | Form | Shows | Metrics |", "|---|---|---|---|---|"], ""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] == "row":
            group = panel["title"]
            continue
        expressions = " ".join(target["expr"] for target in panel["targets"])
        metrics = dict.fromkeys(re.findall(r"\b((?:pumice|volcano|process)_[a-z_]+)", expressions))
        named = ", ".join(f"`{metric}`" for metric in metrics)
        rows.append(f"| {group} | {panel['title']} | {panel['type'].replace('timeseries', 'time series')} | {panel.get('description', '')} | {named} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Writes or compares the table."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    text = f"{head}{BEGIN}{table()}{END}{rest.split(END)[1]}"
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print(f"FAIL {PAGE.relative_to(ROOT)}: run .ci/dashboard.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
