#!/usr/bin/env python3
"""Measures the pages as a whole: their words, text that two pages repeat, and how many clicks lead to a page.

    .ci/pages.py               print words, repeated runs and clicks of each page
    .ci/pages.py --at COMMIT   the same of a commit
    .ci/pages.py --runs [PATH...]   print each run of words that these pages share with another page

`.ci/prose.py` compares the sums with its bounds. The aim is 60 % of the words at the base outside internals, and 80 % of all. Left out are the change log, licences, generated parts, blocks of code
and the addresses of links. Code in a line is one word.
"""

from __future__ import annotations

import collections
import posixpath
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Words that people wrote, before pages were ordered by task: commit bacf2a7e.
BASE_WORDS = 69081

# Pages by program, and pages that are not of the project.
GENERATED = ("docs/settings.md",)
# Pages that a program writes from their first heading below the title on.
GENERATED_BELOW = ("docs/reference/objects.md",)
LEFT_OUT = ("CHANGELOG.md", "THIRD-PARTY-LICENSES", "tests/", ".github/")
INTERNALS = ("docs/internals/", "docs/architecture.md")
STARTS = ("README.md", "docs/README.md")

CLICKS = 2
RUN = 8

# A comment opens a generated part: until its end, or the table below it.
PART_END = re.compile(r"<!-- (?:end of .*|[\w -]+: end) -->")
PART = re.compile(r"<!-- (?:[\w ]+: (?:written by .*|begin)|matrix|changes|compared releases|[\w ]+: generated) -->")
TABLE = re.compile(r"<!-- (?:codes: .*|rejections) -->")

LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)]*)\)")
TOKEN = re.compile(r"`[^`]+`|[A-Za-z0-9]+(?:['’.,-][A-Za-z0-9]+)*")
WORD = re.compile(r"`[^`]+`|[A-Za-z][A-Za-z'’-]*")


@dataclass
class Page:
    """A page: its passages, with the line of each, and the pages to which it links."""

    path: str
    passages: list[tuple[int, str]]
    links: set[str]

    def words(self) -> int:
        """Words that people wrote."""
        return sum(len(WORD.findall(text)) for _, text in self.passages)


def read(path: str, text: str) -> Page:
    """A page without blocks of code and generated parts; cells, items and paragraphs are passages."""
    if path in GENERATED_BELOW:
        text = text.split("\n## ", 1)[0]
    passages: list[tuple[int, str]] = []
    links: set[str] = set()
    fence, part, in_table, is_open = "", False, False, False

    def link(match: re.Match[str]) -> str:
        address = match[2].split("#")[0]
        if address and ":" not in address:
            links.add(posixpath.normpath(posixpath.join(posixpath.dirname(path), address)))
        return match[1]

    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        mark = re.match(r"(```+|~~~+)", bare)
        if mark and (not fence or bare == fence):
            fence, is_open = ("" if fence else mark[1]), False
            continue
        if fence:
            continue
        plain = LINK.sub(link, bare)
        in_table = in_table and bare.startswith("|")
        if bare.startswith("<!--"):
            part = bool(PART.fullmatch(bare)) or part and not PART_END.fullmatch(bare)
            in_table, is_open = bool(TABLE.fullmatch(bare)), False
            continue
        if part or in_table or path in GENERATED:
            continue
        if bare.startswith("|"):
            cells = re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\0"), plain).strip("|"))
            passages += [(number, cell.replace("\0", "|")) for cell in cells if cell.strip(" -:")]
            is_open = False
            continue
        begins = not is_open or not bare or re.match(r"([-*+]|[0-9]+[.)])\s|#", bare)
        if begins and plain:
            passages.append((number, plain))
        elif plain:
            passages[-1] = (passages[-1][0], f"{passages[-1][1]} {plain}")
        is_open = bool(bare) and not bare.startswith("#")
    return Page(path, passages, links)


def tree(commit: str | None) -> dict[str, Page]:
    """Pages of the working tree or of a commit, by path."""
    listing = ["git", "ls-files"] if commit is None else ["git", "ls-tree", "-r", "--name-only", commit]
    listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    found = {}
    for path in listed:
        if not path.endswith(".md") or path.startswith(LEFT_OUT) or "/tests/" in path:
            continue
        if commit is not None:
            text = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        elif (ROOT / path).is_file():
            text = (ROOT / path).read_text(encoding="utf-8")
        else:
            continue
        found[path] = read(path, text)
    return found


@dataclass(frozen=True)
class SharedRun:
    """A run of words that another page has as well."""

    path: str
    line: int
    others: tuple[str, ...]
    text: str


def shared_runs(pages: dict[str, Page]) -> tuple[int, list[SharedRun]]:
    """Runs of `RUN` words that two pages have: how many different ones, and the longest stretches of them by page."""
    tokens = {path: [(line, TOKEN.findall(text)) for line, text in page.passages] for path, page in pages.items()}
    owners: dict[tuple[str, ...], set[str]] = collections.defaultdict(set)
    for path, passages in tokens.items():
        for _, words in passages:
            lower = [word.lower() for word in words]
            for at in range(len(lower) - RUN + 1):
                owners[tuple(lower[at : at + RUN])].add(path)
    shared = {run for run, paths in owners.items() if len(paths) > 1}
    found = []
    for path, passages in tokens.items():
        for line, words in passages:
            lower = [word.lower() for word in words]
            at = 0
            while at + RUN <= len(lower):
                end, others = at, set()
                while tuple(lower[end : end + RUN]) in shared and end + RUN <= len(lower):
                    others |= owners[tuple(lower[end : end + RUN])]
                    end += 1
                if end > at:
                    found.append(SharedRun(path, line, tuple(sorted(others - {path})), " ".join(words[at : end + RUN - 1])))
                at = end + 1
    return len(shared), found


def clicks(pages: dict[str, Page]) -> dict[str, int]:
    """Clicks from the first pages to each page that has a way."""
    ways = {path: 0 for path in STARTS if path in pages}
    open_pages = list(ways)
    for path in open_pages:
        for linked in sorted(pages[path].links):
            if linked in pages and linked not in ways:
                ways[linked] = ways[path] + 1
                open_pages.append(linked)
    return ways


@dataclass(frozen=True)
class Survey:
    """Pages with what is measured of them as a whole."""

    pages: dict[str, Page]
    ways: dict[str, int]
    run_count: int
    runs: list[SharedRun]

    @staticmethod
    def of(pages: dict[str, Page]) -> Survey:
        """Measures these pages."""
        return Survey(pages, clicks(pages), *shared_runs(pages))

    def distant(self) -> list[str]:
        """Pages that need too many clicks, or to which no way leads."""
        return [path for path in self.pages if self.ways.get(path, CLICKS + 1) > CLICKS]

    def sums(self) -> dict[str, float]:
        """Sums by the name of their bound."""
        words = {path: page.words() for path, page in self.pages.items()}
        return {
            "words-outside-internals": float(sum(count for path, count in words.items() if not path.startswith(INTERNALS))),
            "words-of-all-pages": float(sum(words.values())),
            "repeated-runs": float(self.run_count),
            "distant-pages": float(len(self.distant())),
        }

    def places(self) -> list[tuple[str, int, str, str]]:
        """Each repeated run and each distant page: path, line, measure, text."""
        runs = [(run.path, run.line, "repeated-runs", f"{', '.join(run.others)}: {run.text}") for run in self.runs]
        return runs + [(path, 1, "distant-pages", f"{self.ways.get(path, 'no')} clicks") for path in self.distant()]


def main(arguments: list[str]) -> int:
    """Prints the measures by page."""
    commit = arguments[arguments.index("--at") + 1] if "--at" in arguments else None
    survey = Survey.of(tree(commit))
    if "--runs" in arguments:
        wanted = tuple(argument for argument in arguments if argument.endswith((".md", "/")))
        for path, line, name, text in survey.places():
            if not wanted or path.startswith(wanted):
                print(f"{path}:{line}: {name}: {text}")
        return 0
    runs = collections.Counter(run.path for run in survey.runs)
    print(f"{'words':>7} {'shared':>6} {'clicks':>6}  page")
    for path, page in sorted(survey.pages.items(), key=lambda item: -item[1].words()):
        print(f"{page.words():7} {runs[path]:6} {survey.ways.get(path, '-'):>6}  {path}")
    for name, value in survey.sums().items():
        share = f" ({value / BASE_WORDS:.1%} of {BASE_WORDS})" if name.startswith("words") else ""
        print(f"{value:7.0f}  {name}{share}")
    return 0


def self_test() -> None:
    """Shows that each measure notices a breach of it, and what is left out."""
    long = "one two three four five six seven eight"
    first = read("README.md", f"# A title\n\n{long} [nine](docs/a.md#x)\n\n```sh\ncode here\n```\n| a `b|c` | d |\n|---|---|\n")
    assert first.words() == 2 + 9 + 3 and first.links == {"docs/a.md"}, (first.passages, first.links)
    second = read("docs/a.md", f"Also {long} [b](b.md)\n- item\n  more\n<!-- codes: X -->\n| left | out |\n\nin\n<!-- a: begin -->\nout\n<!-- a: end -->\nin\n")
    assert second.words() == 1 + 8 + 1 + 2 + 2, second.passages
    third = read("docs/b.md", "three four five six seven eight nine ten eleven [c](c.md)")
    pages = {page.path: page for page in (first, second, third, read("docs/c.md", "x"))}
    survey = Survey.of(pages)
    assert [(run.path, run.line) for run in survey.runs] == [("README.md", 3), ("docs/a.md", 1)], survey.runs
    assert survey.ways == {"README.md": 0, "docs/a.md": 1, "docs/b.md": 2, "docs/c.md": 3}
    assert [place[:3] for place in survey.places()][2:] == [("docs/c.md", 1, "distant-pages")], survey.places()
    sums = survey.sums()
    assert sums["repeated-runs"] == 1 and sums["distant-pages"] == 1, sums
    pages["docs/internals/d.md"] = read("docs/internals/d.md", "five more words stand here")
    wider = Survey.of(pages).sums()
    assert wider["words-outside-internals"] == sums["words-outside-internals"]
    assert wider["words-of-all-pages"] == sums["words-of-all-pages"] + 5


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv else main(sys.argv[1:]))
