#!/usr/bin/env python3
"""Checks the vocabulary of the tree: names of types, summaries of documentation, coined words, worn phrases; and its prose.

    .ci/words.py            check the tree; the exit code is 1 if anything is above its bound
    .ci/words.py --figures  also print the figures by part of the tree
    .ci/prose.py            check the prose alone, and list its places: see there
    .ci/words.py --list     also print every one-word type name
    .ci/words.py --self-test

A coined word that is right at one place is allowed there by a line of `.ci/words-allowed.txt`:

    <path or folder> <word> <why>
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = Path(__file__).resolve().with_name("words-allowed.txt")

ONE_WORD_SHARE = 0.30
SUMMARY_SHARE = 0.01
PHRASES_AT_MOST = 20

# Files may have this many lines of code, comments and blank lines left out.
CODE_LINES = 500
LONG_FILES = {"src/limits/limit_list.rs": "a table with one entry for each limit"}

# Where a single word is the field's own name for the thing: grammar, numbers.
FIELD_WORDS = ("crates/engine/src/policy/yaml/", "crates/engine/src/model/quantity/")

# A summary that begins with one of these does not name its noun.
NOUNLESS = re.compile(r"^(What|Who|Whom|Whose|It|They|So|As|Its|Their|Those|These|The same)\b")

PHRASES = re.compile(r"\b(anew|so many|stands? (?:in|there|beside))\b", re.IGNORECASE)

# Words that this project once coined, with the term to use.
COINED = {
    "ground": "evaluation_ref, against",
    "world": "snapshot",
    "worlds": "snapshots",
    "standing": "evaluation_context, status",
    "stamp": "metadata",
    "imagined": "hypothetical",
    "imagine": "hypothetical",
    "sieve": "filter_pass",
    "hands": "parallelism",
    "effort": "parallelism",
    "surplus": "delta",
    "wholes": "integer_column",
    "joining": "arrival",
    "owed": "pending_repair",
    "owes": "pending_repair",
    "settle": "apply",
    "settled": "applied",
    "settles": "applies",
    "slip": "suggestion",
    "seam": "port",
    "fallible": "failing",
    "figure": "measurement",
    "figures": "measurements",
    "finding": "diagnostic",
    "findings": "diagnostics",
    "refusal": "rejection",
    "refusals": "rejections",
    "movement": "placement_event",
    "movements": "placement_events",
    "habit": "lookahead",
    "answer": "result, response",
    "answers": "results, responses",
    "question": "query, request",
    "questions": "queries, requests",
    "fault": "problem, diagnostic, error",
    "faults": "problems, diagnostics, errors",
    "told": "reported",
    "kept": "durable, stored",
    "books": "accounts",
    "anew": "again",
}

SUMMARY_LANGUAGES = {".rs", ".proto"}
CODE_LANGUAGES = {".rs", ".go", ".py", ".pyi", ".proto"}
PROSE = {".md"}
GENERATED = re.compile(r"(\.pb\.go|_pb2\.pyi?|_pb2_grpc\.py|/pumicev1/|/generated/)")

TYPE = re.compile(r"^(?P<indent>\s*)(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?P<kind>struct|enum|trait|type|union)\s+(?P<name>[A-Z]\w*)")
ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+|async\s+|unsafe\s+|const\s+|extern\s+)*"
    r"(?:struct|enum|trait|type|union|fn|mod|const|static|macro_rules!|[A-Za-z_]\w*\s*[:({,]|[A-Z]\w*)"
)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SHARED = re.compile(r"//.*\bshared name:\s*\S+", re.IGNORECASE)


@dataclass(frozen=True)
class Type:
    """A type of the Rust code."""

    path: str
    line: int
    name: str
    excused: bool


@dataclass(frozen=True)
class Summary:
    """The first line of a documentation comment."""

    path: str
    line: int
    text: str


def types(path: str, text: str) -> list[Type]:
    """Types that `text` defines; associated types of traits and impls are none."""
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = TYPE.match(line)
        if match is None or (match["kind"] == "type" and match["indent"]):
            continue
        above = lines[max(0, number - 12) : number]
        comment = []
        for earlier in reversed(above):
            if not earlier.strip().startswith(("//", "#[", ")]")):
                break
            comment.append(earlier)
        excused = any(SHARED.search(earlier) for earlier in [line, *comment])
        found.append(Type(path, number + 1, match["name"], excused))
    return found


def summaries(path: str, text: str) -> list[Summary]:
    """The first line of each documentation comment of `text`."""
    proto = path.endswith(".proto")
    found = []
    inside = False
    for number, line in enumerate(text.split("\n")):
        bare = line.strip()
        mark = next((m for m in ("///", "//!") if bare.startswith(m)), None)
        if proto and bare.startswith("//"):
            mark = "//"
        if mark is None:
            inside = False
            continue
        if not inside:
            found.append(Summary(path, number + 1, bare[len(mark) :].strip()))
        inside = True
    return found


def without_text(path: str, text: str) -> str:
    """The code of `text`, its comments and literals blanked."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))  # noqa: E731
    if path.endswith((".py", ".pyi")):
        text = re.sub(r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'', blank, text)
        return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', blank, text)
    text = re.sub(
        r'r(#+)"[\s\S]*?"\1|//[^\n]*|/\*[\s\S]*?\*/|b?"(?:\\[\s\S]|[^"\\])*"|`[^`]*`' if path.endswith(".go")
        else r'r(#+)"[\s\S]*?"\1|//[^\n]*|/\*[\s\S]*?\*/|b?"(?:\\[\s\S]|[^"\\])*"',
        blank,
        text,
    )
    return text


def code_lines(text: str) -> int:
    """Lines of code of Rust source."""
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in text.split("\n"))


def words(identifier: str) -> list[str]:
    """The words of an identifier in any casing, in lower case."""
    return [word.lower() for word in WORD.findall(identifier)]


def coined(path: str, text: str) -> list[tuple[int, str, str]]:
    """Coined words in the identifiers of `text`: line, identifier, word."""
    found = []
    for number, line in enumerate(without_text(path, text).split("\n")):
        for match in IDENTIFIER.finditer(line):
            for word in words(match.group(0)):
                if word in COINED:
                    found.append((number + 1, match.group(0), word))
    return found


def allowed() -> list[tuple[str, str]]:
    """Places at which a coined word is right."""
    if not ALLOWED.exists():
        return []
    rows = [line.split(None, 2) for line in ALLOWED.read_text().split("\n") if line.strip() and not line.startswith("#")]
    for row in rows:
        if len(row) != 3:
            raise SystemExit(f"{ALLOWED.name}: a line needs a path, a word and a reason: {' '.join(row)}")
    return [(row[0], row[1]) for row in rows]


def tracked() -> list[str]:
    """Files of the tree that people wrote."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    own = {Path(__file__).resolve(), ALLOWED}
    files = [name for name in listed.split("\0") if name and not GENERATED.search(name)]
    return [name for name in files if (ROOT / name).is_file() and (ROOT / name).resolve() not in own]


@dataclass
class Report:
    """Everything that the check found."""

    types: list[Type]
    summaries: list[Summary]
    coined: list[tuple[str, int, str, str]]
    phrases: list[tuple[str, int, str]]
    long: list[tuple[str, int]]

    @staticmethod
    def read() -> "Report":
        """Reads the tree."""
        report = Report([], [], [], [], [])
        permits = allowed()
        used = set()
        for name in tracked():
            suffix = Path(name).suffix
            if suffix not in CODE_LANGUAGES | PROSE and Path(name).name not in {"Makefile", "run"}:
                continue
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            if suffix == ".rs":
                report.types += types(name, text)
                length = code_lines(text)
                if length > CODE_LINES and name not in LONG_FILES:
                    report.long.append((name, length))
            if suffix in SUMMARY_LANGUAGES:
                report.summaries += summaries(name, text)
            if suffix in CODE_LANGUAGES:
                for line, identifier, word in coined(name, text):
                    permit = next((p for p in permits if name.startswith(p[0]) and p[1] == word), None)
                    if permit is None:
                        report.coined.append((name, line, identifier, word))
                    else:
                        used.add(permit)
            for number, line in enumerate(text.split("\n")):
                report.phrases += [(name, number + 1, match.group(0)) for match in PHRASES.finditer(line)]
        unused = [permit for permit in permits if permit not in used]
        if unused:
            raise SystemExit(f"{ALLOWED.name}: no longer needed: {unused}")
        return report

    def one_word(self, part: str | tuple[str, ...] = ("src/", "crates/")) -> tuple[list[Type], int]:
        """Types below `part` whose name is one word, and how many types there are."""
        counted = [t for t in self.types if t.path.startswith(part) and not t.path.startswith(FIELD_WORDS)]
        return [t for t in counted if re.fullmatch(r"[A-Z][a-z0-9]*", t.name)], len(counted)

    def shared(self) -> dict[str, list[Type]]:
        """Names that more than one type has, without those that say why."""
        by_name: dict[str, list[Type]] = collections.defaultdict(list)
        for found in self.types:
            by_name[found.name].append(found)
        return {name: same for name, same in by_name.items() if sum(not t.excused for t in same) > 1}

    def nounless(self) -> list[Summary]:
        """Summaries that do not name their noun."""
        return [s for s in self.summaries if NOUNLESS.match(s.text)]


def check(options: set[str]) -> int:
    """Prints what is wrong and the figures; the exit code."""
    report = Report.read()
    failed = False

    def line(name: str, value: str, good: bool) -> None:
        nonlocal failed
        failed = failed or not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {value}")

    one, count = report.one_word()
    line("type names of one word", f"{len(one)} of {count} ({len(one) / max(count, 1):.1%}), at most {ONE_WORD_SHARE:.0%}", len(one) <= ONE_WORD_SHARE * count)
    shared = report.shared()
    for name, same in sorted(shared.items()):
        print("  shared:", name, *(f"{t.path}:{t.line}" for t in same))
    line("type names for two things", str(len(shared)), not shared)
    bad = report.nounless()
    for summary in bad:
        print(f"  {summary.path}:{summary.line}: {summary.text[:90]}")
    share = len(bad) / max(len(report.summaries), 1)
    line("summaries without their noun", f"{len(bad)} of {len(report.summaries)} ({share:.2%}), at most {SUMMARY_SHARE:.0%}", share <= SUMMARY_SHARE)
    for path, number, identifier, word in report.coined:
        print(f"  {path}:{number}: {identifier} ({word}: use {COINED[word]})")
    line("coined words in identifiers", str(len(report.coined)), not report.coined)
    if len(report.phrases) > PHRASES_AT_MOST:
        for path, number, phrase in report.phrases:
            print(f"  {path}:{number}: {phrase}")
    line("anew, so many, stands in/there/beside", f"{len(report.phrases)}, at most {PHRASES_AT_MOST}", len(report.phrases) <= PHRASES_AT_MOST)
    for path, length in report.long:
        print(f"  {path}: {length} lines of code")
    line(f"files over {CODE_LINES} lines of code", str(len(report.long)), not report.long)
    if "--figures" in options:
        parts = sorted({"/".join(t.path.split("/")[:2]) + "/" for t in report.types})
        for part in parts:
            one, count = report.one_word(part)
            print(f"  {part}: {len(one)} of {count} types of one word")
    if "--list" in options:
        for found in sorted(report.one_word("")[0], key=lambda t: t.name):
            print(f"  {found.name} {found.path}:{found.line}")
    return 1 if failed else 0


def self_test() -> int:
    """Shows that each rule notices a breach of it."""
    rust = "/// What is left.\npub struct Left;\n\n/// Amount that is left.\npub struct RemainingAmount { fault: u32, /* ground */ text: &'static str }\nfn f() { let x = \"ground\"; } // stamp\ntype Left = u8;\n"
    assert [t.name for t in types("a.rs", rust)] == ["Left", "RemainingAmount", "Left"]
    assert [s.text for s in summaries("a.rs", rust) if NOUNLESS.match(s.text)] == ["What is left."]
    assert [word for _, _, word in coined("a.rs", rust)] == ["fault"]
    assert [word for _, _, word in coined("a.py", 'x.ground = "stamp"  # world\n')] == ["ground"]
    assert words("WorldGround_stampHTTPAnswer2") == ["world", "ground", "stamp", "http", "answer", "2"]
    assert len(PHRASES.findall("anew, so many; it stands beside it")) == 3
    assert types("a.rs", "// Shared name: the wire has one, too.\nstruct Node;\n")[0].excused
    assert [s.text for s in summaries("a.proto", "// So it is.\n// More.\nmessage M {\n  // The name.\n  string name = 1;\n}\n")] == ["So it is.", "The name."]
    report = Report([Type("src/a.rs", 1, "Left", False), Type("src/b.rs", 1, "Left", False)], [], [], [], [])
    assert list(report.shared()) == ["Left"] and len(report.one_word()[0]) == 2
    assert code_lines("// c\n\nfn f() {}\n    // d\n}\n") == 2
    print("self-test passed")
    return 0


if __name__ == "__main__":
    arguments = set(sys.argv[1:])
    sys.exit(self_test() or prose.self_test() if "--self-test" in arguments else max(check(arguments), prose.check(set(), [])))
