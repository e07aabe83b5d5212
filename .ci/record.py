#!/usr/bin/env python3
"""Records a command in a terminal and writes the recording as an animated SVG.

    .ci/record.py [--columns N] [--rows N] [--shown COMMAND] FILE.svg COMMAND...

Output and order are those of the run. A gap between two lines is the one of the run, but at least `SHORTEST` and at
most `LONGEST` seconds, and a blank line waits for `PAUSE` seconds, so a reader can follow. The title has the time that
the run took. The picture has its colours for light and for dark pages; without animation it shows the beginning.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from html import escape
from pathlib import Path

SHORTEST, LONGEST, PAUSE, END = 0.12, 1.5, 1.8, 5.0
CELL, ROW, LEFT, TOP = 7.2, 17, 14, 46

SGR = re.compile(r"\x1b\[([0-9;]*)m")
OTHER = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-ln-z]|\][^\x07]*\x07|[()][A-Z0-9])|\r")
CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}

STYLE = (
    "text{font:12px ui-monospace,SFMono-Regular,'DejaVu Sans Mono',monospace;fill:#1f2328;white-space:pre}.b{font-weight:700}.d,.t{fill:#59636e}.r{fill:#cf222e}.g{fill:#1a7f37}"
    ".y{fill:#9a6700}.u{fill:#0969da}.m{fill:#8250df}.c{fill:#1b7c83}.page{fill:#f6f8fa;stroke:#d1d9e0}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.d,.t{fill:#9198a1}.r{fill:#ff7b72}.g{fill:#3fb950}.y{fill:#d29922}.u{fill:#58a6ff}.m{fill:#bc8cff}.c{fill:#39c5cf}"
    ".page{fill:#161b22;stroke:#3d444d}}"
)


def run(command: list[str], columns: int, rows: int) -> tuple[list[tuple[float, str]], float]:
    """Lines of the command in a terminal of this size, each with the second of its end, and the seconds of the run."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)})
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    started, lines, rest = time.monotonic(), [], b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:
            read = b""
        if not read:
            break
        *ended, rest = (rest + read).split(b"\n")
        lines += [(time.monotonic() - started, line.decode("utf-8", "replace")) for line in ended]
    took = time.monotonic() - started
    if rest:
        lines.append((took, rest.decode("utf-8", "replace")))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return lines, took


def cells(line: str, columns: int) -> list[list[tuple[str, str]]]:
    """Rows of a line on a terminal: characters with their classes."""
    state: set[str] = set()
    found: list[tuple[str, str]] = []
    at = 0
    line = OTHER.sub("", line)
    for match in SGR.finditer(line):
        found += [(letter, " ".join(sorted(state))) for letter in line[at : match.start()]]
        at = match.end()
        for number in match[1].split(";"):
            state = set() if number in {"", "0"} else state | ({CLASSES[number]} if number in CLASSES else set())
    found += [(letter, " ".join(sorted(state))) for letter in line[at:]]
    return [found[start : start + columns] for start in range(0, max(len(found), 1), columns)]


def text(row: list[tuple[str, str]], y: float, kind: str) -> str:
    """A row as text, with the width that its cells have in a terminal."""
    while row and row[-1][0] == " ":
        row = row[:-1]
    if not row:
        return ""
    spans, at = "", 0
    while at < len(row):
        end = at
        while end < len(row) and row[end][1] == row[at][1]:
            end += 1
        part = escape("".join(letter for letter, _ in row[at:end]), quote=False)
        spans += f'<tspan class="{row[at][1]}">{part}</tspan>' if row[at][1] else part
        at = end
    return f'<text class="{kind}" x="{LEFT}" y="{y:g}" xml:space="preserve" textLength="{len(row) * CELL:.4g}">{spans}</text>\n'


def svg(lines: list[tuple[float, str]], took: float, shown: str, columns: int, rows: int) -> str:
    """The recording."""
    body, times, clock, before = [], [], 0.5, 0.0
    for at, line in lines:
        gap = min(max(at - before, SHORTEST), LONGEST)
        clock, before = clock + (PAUSE if not OTHER.sub("", line).strip() else gap), at
        for row in cells(line, columns):
            body.append(row)
            times.append(clock)
    total = clock + END
    width, height = round(LEFT * 2 + columns * CELL), TOP + rows * ROW
    share = [100 * at / total for at in times]
    rules = [f"@keyframes k{at}{{0%,{part:.2f}%{{opacity:0}}{part + 0.01:.2f}%,100%{{opacity:1}}}}" for at, part in enumerate(share)]
    rules += [f".k{at}{{animation:k{at} {total:.1f}s infinite}}" for at in range(len(share))]
    steps, last = ["0%{transform:translateY(0)}"], 0
    for at, part in enumerate(share):
        up = max(at + 1 - rows, 0) * ROW
        if up != last:
            steps.append(f"{part:.2f}%{{transform:translateY(-{last}px)}}{part + 0.01:.2f}%{{transform:translateY(-{up}px)}}")
            last = up
    steps.append(f"100%{{transform:translateY(-{last}px)}}")
    rules.append(f"@keyframes up{{{''.join(steps)}}}.up{{animation:up {total:.1f}s infinite}}")
    rules.append("@media(prefers-reduced-motion:reduce){*{animation:none!important}}")
    drawn = "".join(text(row, TOP + at * ROW + 6, f"k{at}") for at, row in enumerate(body))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n<title>{escape(shown)}, recorded: the run took {took:.1f} s</title>\n'
        f'<style>{STYLE}{"".join(rules)}</style>\n<clipPath id="clip"><rect x="0" y="{TOP - 7}" width="{width}" height="{rows * ROW}"/></clipPath>\n'
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f'<text class="b" x="{LEFT}" y="22">$ {escape(shown)}</text><text class="t" x="{width - LEFT}" y="22" text-anchor="end">a run of {took:.1f} s, slowed down to {total - END:.0f} s</text>\n'
        f'<g clip-path="url(#clip)"><g class="up">\n{drawn}</g></g>\n</svg>\n'
    )


def main() -> int:
    """Records the command."""
    parser = argparse.ArgumentParser(description="Record a command as an animated SVG.")
    parser.add_argument("--columns", type=int, default=106)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--shown", help="command line to show, if it differs from the one that runs")
    parser.add_argument("file", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    lines, took = run(chosen.command, chosen.columns, chosen.rows)
    while lines and not lines[-1][1].strip():
        lines.pop()
    shown = chosen.shown or " ".join([Path(chosen.command[0]).name, *chosen.command[1:]])
    picture = svg(lines, took, shown, chosen.columns, chosen.rows)
    if len(picture) > 150_000:
        raise SystemExit(f"{len(picture)} bytes are more than 150 kB")
    chosen.file.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
