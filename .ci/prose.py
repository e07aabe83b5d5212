#!/usr/bin/env python3
"""Measures the prose of pages, protocol, help texts and documentation comments against bounds that only fall.

The words and repetitions of the pages as a whole are measured by `.ci/pages.py`.

    .ci/prose.py            print each measure with its bound; the exit code is 1 if anything is above its bound
    .ci/prose.py --list [PATH...]   also print each place, of these files or folders
    .ci/prose.py --record   lower the bounds to what was measured
    .ci/prose.py --self-test

The rules are in docs/internals/prose.md. A line of which a check would make the sentence worse is a line in
`.ci/prose-allowed.txt`: <path> | <part of the line> | <reason>.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pages
import variables

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).resolve().parent
BOUNDS = FOLDER / "prose-bounds.txt"
ALLOWED = FOLDER / "prose-allowed.txt"

# Number of the rules: a change that measures more under an old name raises it, and bounds of other numbers are void.
RULES = 6

# Kinds of prose: what is read.
KINDS = ("pages", "protocol", "help", "documentation")

MACHINE = (
    r"(?:pumice|server|client|program|command|process|scheduler|adapter|plugin|store|page|file|log|table|line|test|policy|"
    r"document|metric|alert|chart|replica|cluster|call|response|result|error|message)"
)

# Occurrences of each are counted per 1,000 words.
MEASURES = {
    "headless": r"\b(?:that of|those (?:of|that|which|who)|of which|of whom|of those|of these|the one (?:that|before|after)|one that)\b",
    "count-for-apply": r"\b(?:counts?|counted)\b(?! (?:of|the number|how many))",
    "negated-noun": r"\b(?:is no|are no|was no|nobody|no one|nobody's)\b(?! longer| more)",
    "so-that": r", so that\b",
    "machine-speaks": r"\b(?:says|tells|told|hears|heard|judges|judged|promises|promised|knows|looks at|looked at)\b|\b"
    + MACHINE
    + r"s? (?:say|tell|hear|judge|promise|know|look at|asks?|answers?|wants?|feels?)\b",
    "archaism": r"\b(?:mend|mended|mends|meanwhile|in vain|begin of|stands? (?:there|in|beside)|goes on|will do|do for|be had|hold together"
    r"|come of it|he|his|whom|whoever|whatever)\b",
    "worn-word": r"\b(?:puts? (?:\w+ ){0,4}into force|kept back|the books|refus(?:e|es|ed|al|als|ing)|gives? way|begins? again|turns? round"
    r"|becomes? of|at one blow|stands? behind|said so|says so|is said|is told|no more than)\b|, too\b|\bmakes? (?:these|those|the) values\b",
}
FOR_EXAMPLE = re.compile(r"\b(?:for example|e\.g\.|for instance|such as)\b", re.IGNORECASE)
COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in MEASURES.items()}
LONG = 30

# Bounds once everything of a kind is written by the rules. Bounds do not fall below these.
GOALS = {
    "headless": 0.5,
    "count-for-apply": 0.6,
    "negated-noun": 0.3,
    "so-that": 0.1,
    "machine-speaks": 0.8,
    "archaism": 0.2,
    "worn-word": 0.5,
    "long-sentences-percent": 1,
    "for-example": 2,
    "lines": 120,
    "words": 800,
    "old-names": 0,
    "tuple-parameters": 0,
    "echoing-documentation": 0,
    "words-outside-internals": 0,
    "words-of-all-pages": 0,
    "repeated-runs": 0,
    "distant-pages": 0,
}
# A commit that documents a feature may raise these bounds: it shows in the bounds' difference.
MAY_GROW = ("words-outside-internals", "words-of-all-pages")

WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
GENERATED = re.compile(r"(\.pb\.go|_pb2\.pyi?|_pb2_grpc\.py|/pumicev1/|/generated/)")
# Pages without prose of the project: texts of licences, recorded inputs, measured tables.
NOT_PROSE = ("THIRD-PARTY-LICENSES", "tests/")


@dataclass(frozen=True)
class Passage:
    """A paragraph, list item, table cell or comment: its text and the line on which it begins."""

    path: str
    line: int
    text: str


@dataclass
class Measured:
    """Sums of one kind of prose."""

    words: int = 0
    sentences: int = 0
    long: int = 0
    examples: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEASURES, 0))
    places: list[tuple[str, int, str, str]] = field(default_factory=list)

    def add(self, passage: Passage, permits: Permits) -> None:
        """Adds what a passage has."""
        text = passage.text
        self.words += len(WORD.findall(text))
        self.examples += len(FOR_EXAMPLE.findall(text))
        for name, pattern in COMPILED.items():
            for match in pattern.finditer(text):
                if permits.cover(passage.path, text):
                    continue
                self.hits[name] += 1
                start = max(0, match.start() - 40)
                self.places.append((passage.path, passage.line, name, text[start : match.end() + 40]))
        for sentence in re.split(r"(?<=[.!?:])\s+", text):
            length = len(WORD.findall(sentence))
            if length <= 2:
                continue
            self.sentences += 1
            if length > LONG and not permits.cover(passage.path, text):
                self.long += 1
                self.places.append((passage.path, passage.line, f"{length} words", sentence[:100]))

    def per_thousand(self) -> dict[str, float]:
        """Measures by name; more of `for-example` is better, less of all others."""
        per = {name: 1000 * hits / max(self.words, 1) for name, hits in self.hits.items()}
        per["long-sentences-percent"] = 100 * self.long / max(self.sentences, 1)
        per["for-example"] = 1000 * self.examples / max(self.words, 1)
        return per


class Permits:
    """Passages that a check would make worse, each with its reason."""

    def __init__(self, text: str) -> None:
        self.rows: list[tuple[str, str]] = []
        self.used: set[tuple[str, str]] = set()
        for line in text.split("\n"):
            if not line.strip() or line.startswith("#"):
                continue
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) != 3 or not all(cells):
                raise SystemExit(f"{ALLOWED.name}: a line is <path> | <part of the line> | <reason>: {line}")
            self.rows.append((cells[0], cells[1]))

    def cover(self, path: str, text: str) -> bool:
        """True if a row permits this passage."""
        for row in self.rows:
            if row[0] == path and row[1] in text:
                self.used.add(row)
                return True
        return False

    def unused(self) -> list[tuple[str, str]]:
        """Rows that no passage needs."""
        return [row for row in self.rows if row not in self.used]


def plain(text: str) -> str:
    """Text without code, links' addresses and marks of comments."""
    text = re.sub(r"``[^`]*``|`[^`]*`", "x", text)
    text = re.sub(r"<!--.*?-->", " ", text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"\s+", " ", text).strip()


def paragraphs(path: str, lines: list[tuple[int, str]]) -> list[Passage]:
    """Paragraphs, list items and table cells of Markdown lines."""
    found: list[Passage] = []
    open_lines: list[str] = []
    start = 0

    def close() -> None:
        nonlocal open_lines
        text = plain("\n".join(open_lines))
        if text:
            found.append(Passage(path, start, text))
        open_lines = []

    fence = ""
    for number, line in lines:
        bare = line.strip()
        mark = re.match(r"(```+|~~~+)", bare)
        if mark and (not fence or bare == fence):
            close()
            fence = "" if fence else mark[1]
            continue
        if fence:
            continue
        if bare.startswith("|"):
            close()
            start = number
            for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "x", bare).strip("|")):
                open_lines = [cell]
                close()
            continue
        if not bare or bare.startswith(("#", "<", "!")):
            close()
            continue
        if re.match(r"([-*+]|[0-9]+[.)])\s", bare):
            close()
            bare = re.sub(r"^([-*+]|[0-9]+[.)])\s+", "", bare)
        if not open_lines:
            start = number
        open_lines.append(bare)
    close()
    return found


def comments(path: str, text: str, marks: tuple[str, ...]) -> list[tuple[Passage, int]]:
    """Blocks of comments with these marks, with the index of the line after each block."""
    found = []
    block: list[tuple[int, str]] = []
    lines = text.split("\n")
    for index, line in enumerate([*lines, ""]):
        bare = line.strip()
        mark = next((m for m in marks if bare.startswith(m)), None)
        if mark is not None:
            block.append((index + 1, bare[len(mark) :]))
        elif block:
            found += [(passage, index) for passage in paragraphs(path, block)]
            block = []
    return found


CONTAINER = re.compile(r"^(pub(?:\([^)]*\))? )?(?:unsafe )?(struct|enum|trait|impl|mod|union)\b")
HELP_DERIVE = re.compile(r"derive\([^)]*\b(?:Parser|Args|Subcommand|ValueEnum)\b")
HELP_TEXT = re.compile(r'\b(?:help|about|long_about|after_help|before_help|long_help)\s*[:=(]\s*"((?:\\.|[^"\\])*)"')


def shipped(text: str) -> str:
    """Source without the tests at its end."""
    return text.split("#[cfg(test)]\nmod tests", 1)[0]


def rust(path: str, text: str) -> tuple[list[Passage], list[Passage]]:
    """Documentation of public items, and texts of `--help`."""
    text = shipped(text)
    lines = text.split("\n")
    containers: list[tuple[bool, str, bool]] = []
    derives = False
    current = (False, "", False)
    for line in lines:
        if line.startswith("#["):
            derives = derives or bool(HELP_DERIVE.search(line))
        match = CONTAINER.match(line)
        if match:
            current = (match[1] == "pub ", match[2], derives)
        if line and not line.startswith(("#[", "//", " ", ")")):
            derives = False
        containers.append(current)
    documentation = [passage for passage, _ in comments(path, text, ("//!",))]
    helps = []
    for passage, after in comments(path, text, ("///",)):
        follows = after
        while follows < len(lines) and (lines[follows].strip().startswith(("#[", ")]")) or not lines[follows].strip()):
            follows += 1
        if follows >= len(lines):
            continue
        line = lines[follows]
        in_public, kind, is_help = containers[follows]
        above = "\n".join(lines[after:follows])
        if is_help and kind in {"struct", "enum"} or HELP_DERIVE.search(above):
            helps.append(passage)
        elif line.lstrip().startswith("pub ") or (line.startswith(" ") and in_public and kind in {"enum", "trait"}):
            documentation.append(passage)
    for match in HELP_TEXT.finditer(text):
        said = plain(re.sub(r"\\n|\\\s*\n\s*", " ", match[1]))
        helps.append(Passage(path, text.count("\n", 0, match.start()) + 1, said))
    return documentation, helps


def tracked() -> list[str]:
    """Files of the tree that people wrote."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and not GENERATED.search(name) and (ROOT / name).is_file()]


def unpublished() -> tuple[str, ...]:
    """Folders of the crates that are not published."""
    manifests = ROOT.glob("crates/*/Cargo.toml")
    own = [path for path in manifests if "\npublish = false" in path.read_text(encoding="utf-8")]
    return tuple(f"{path.parent.relative_to(ROOT).as_posix()}/src/" for path in own)


def passages(names: list[str]) -> dict[str, list[Passage]]:
    """Passages of the tree, by kind."""
    found: dict[str, list[Passage]] = {kind: [] for kind in KINDS}
    private = unpublished()
    for name in names:
        suffix = Path(name).suffix
        if name.startswith(NOT_PROSE) or suffix not in {".md", ".proto", ".rs"}:
            continue
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        if suffix == ".md":
            found["pages"] += paragraphs(name, list(enumerate(text.split("\n"), 1)))
        elif suffix == ".proto":
            found["protocol"] += [passage for passage, _ in comments(name, text, ("//",))]
        elif name.startswith("src/") or re.match(r"crates/[^/]+/src/", name):
            documentation, helps = rust(name, text)
            found["documentation"] += [] if "/tests" in name or name.startswith(private) else documentation
            found["help"] += helps
    return found


def readme() -> dict[str, float]:
    """Lines and words of README, its blocks of code left out of the words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    words = re.findall(r"[A-Za-z][A-Za-z'-]*", re.sub(r"```.*?```", "", text, flags=re.S))
    return {"lines": float(text.count("\n")), "words": float(len(words))}


def code(names: list[str], places: list[tuple[str, int, str, str]]) -> dict[str, float]:
    """Variables with old names, tuples as parameters and documentation that echoes a name, in shipped code."""
    counts = {"old-names": variables.old_names, "tuple-parameters": variables.tuple_parameters, "echoing-documentation": variables.echoes}
    sums = dict.fromkeys(counts, 0.0)
    private = unpublished()
    for name in names:
        is_shipped = name.startswith("src/") or re.match(r"crates/[^/]+/src/", name)
        if not name.endswith(".rs") or not is_shipped or "/tests" in name or name.startswith(private):
            continue
        text = shipped((ROOT / name).read_text(encoding="utf-8"))
        lines = text.split("\n")
        for measure, count in counts.items():
            for at in count(text):
                line = at if measure == "echoing-documentation" else text.count("\n", 0, at) + 1
                sums[measure] += 1
                places.append((name, line, measure, lines[line - 1].strip()[:100]))
    return sums


def parse_bounds(text: str) -> tuple[int, dict[tuple[str, str], float]]:
    """Number of the rules, and bounds by kind and measure."""
    rules, bounds = 0, {}
    for line in text.split("\n"):
        cells = line.split("#")[0].split()
        if len(cells) == 2 and cells[0] == "rules":
            rules = int(cells[1])
        elif len(cells) == 3:
            bounds[cells[0], cells[1]] = float(cells[2])
        elif cells:
            raise SystemExit(f"{BOUNDS.name}: a line is <kind> <measure> <bound>: {line}")
    return rules, bounds


def is_better(measure: str, left: float, right: float) -> bool:
    """True if `left` is a stricter bound than `right`."""
    return left > right if measure == "for-example" else left < right


def raised(bounds: dict[tuple[str, str], float]) -> list[str]:
    """Bounds that an earlier commit held more strictly under the same rules."""
    name = BOUNDS.relative_to(ROOT).as_posix()
    listed = subprocess.run(["git", "log", "--format=%H", "--", name], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = []
    for commit in listed.split():
        shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, text=True, check=False)
        if shown.returncode != 0:
            continue
        rules, earlier = parse_bounds(shown.stdout)
        if rules != RULES:
            continue
        for key, bound in earlier.items():
            if key[1] not in MAY_GROW and (key not in bounds or is_better(key[1], bound, bounds[key])):
                found.append(f"{' '.join(key)}: {bound:g} in {commit[:8]}, and now {bounds.get(key)}")
    return sorted(set(found))


def check(options: set[str], places: list[str]) -> int:
    """Prints the measures and what is above its bound; the exit code."""
    permits = Permits(ALLOWED.read_text(encoding="utf-8") if ALLOWED.exists() else "")
    measured: dict[tuple[str, str], float] = {}
    words: dict[str, int] = {}
    failing: dict[str, Measured] = {}
    for kind, found in passages(tracked()).items():
        sums = Measured()
        for passage in found:
            sums.add(passage, permits)
        words[kind], failing[kind] = sums.words, sums
        values = sums.per_thousand()
        measured.update({(kind, name): value for name, value in values.items()})
    failing["code"], failing["tree"] = Measured(), Measured()
    measured.update({("README", name): value for name, value in readme().items()})
    measured.update({("code", name): value for name, value in code(tracked(), failing["code"].places).items()})
    survey = pages.Survey.of(pages.tree(None))
    failing["tree"].places = survey.places()
    measured.update({("tree", name): value for name, value in survey.sums().items()})
    if "--list" in options:
        for sums in failing.values():
            for path, line, name, text in sums.places:
                if not places or path.startswith(tuple(places)):
                    print(f"  {path}:{line}: {name}: {text}")
    rules, bounds = parse_bounds(BOUNDS.read_text(encoding="utf-8") if BOUNDS.exists() else "")
    if "--record" in options:
        record(measured, bounds if rules == RULES else {})
        return 0
    failed = rules != RULES
    if failed:
        print(f"FAIL {BOUNDS.name} has bounds of rules {rules}, and these are rules {RULES}: run with --record")
    for kind in dict.fromkeys(key[0] for key in measured):
        print(f"prose of {kind}" + (f", {words[kind]} words, per 1,000" if kind in words else "") + ":")
        for key, value in measured.items():
            if key[0] != kind:
                continue
            bound = bounds.get(key)
            good = bound is not None and not is_better(key[1], bound, round_up(key[1], value))
            failed = failed or not good
            print(f"  {'ok  ' if good else 'FAIL'} {key[1]:<24}{value:8.2f}  at {'least' if key[1] == 'for-example' else 'most'} {bound}")
            if not good and "--list" not in options:
                for path, line, name, text in failing[kind].places if kind in failing else []:
                    if name == key[1] or (name.endswith(" words") and key[1].startswith("long-sentences")):
                        print(f"       {path}:{line}: {text}")
    for row in raised(bounds):
        failed = True
        print(f"FAIL bound raised: {row}")
    unused = permits.unused()
    if unused:
        failed = True
        print(f"FAIL {ALLOWED.name}: no longer needed: {unused}")
    return 1 if failed else 0


def round_up(measure: str, value: float) -> float:
    """The value as a bound has it: two digits, rounded to the lenient side."""
    return math.floor(value * 100) / 100 if measure == "for-example" else math.ceil(value * 100 - 1e-9) / 100


def record(measured: dict[tuple[str, str], float], bounds: dict[tuple[str, str], float]) -> None:
    """Writes each bound: the measure, or the goal if that is laxer. Only sums of words may become laxer than before."""
    lines = ["# Bounds of .ci/prose.py: kind, measure, bound. They only fall, for-example only rises, and words may grow with a feature: --record writes them.", f"rules {RULES}"]
    for key, value in measured.items():
        goal = GOALS[key[1]]
        bound = goal if is_better(key[1], value, goal) else round_up(key[1], value)
        if key[1] not in MAY_GROW and key in bounds and is_better(key[1], bounds[key], bound):
            bound = bounds[key]
        lines.append(f"{key[0]:<14} {key[1]:<24} {bound:g}")
    BOUNDS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def self_test() -> int:
    """Shows that each rule notices a breach of it, and that code and permitted lines are left out."""
    page = (
        "# That of a heading\n\nThe policy counts, so that nobody asks. `that of` code [those of](that-of.md).\n\n"
        "```text\nnobody\n```\n\n| he | `is no | x` is told |\n|---|---|\n- The server says no, for example.\n"
    )
    sums = Measured()
    permits = Permits("")
    for passage in paragraphs("a.md", list(enumerate(page.split("\n"), 1))):
        sums.add(passage, permits)
    hits = {"headless": 1, "count-for-apply": 1, "negated-noun": 1, "so-that": 1, "machine-speaks": 2, "archaism": 1, "worn-word": 1}
    assert sums.hits == hits, sums.hits
    assert sums.examples == 1 and sums.long == 0
    assert [place[1] for place in sums.places if place[2] == "archaism"] == [9]
    long = Measured()
    long.add(Passage("a.md", 1, "word " * 31 + "end."), permits)
    assert long.long == 1
    permits = Permits("# c\na.md | nobody asks | the quotation is Volcano's\nb.md | x | y\n")
    excused = Measured()
    excused.add(Passage("a.md", 1, "And nobody asks."), permits)
    assert excused.hits["negated-noun"] == 0 and permits.unused() == [("b.md", "x")]
    source = (
        "//! Module.\n/// A pub item.\npub struct A {\n    /// Field.\n    pub a: u8,\n    /// Private.\n    b: u8,\n}\n/// Private type.\nstruct B;\n"
        "/// E.\npub enum E {\n    /// Variant.\n    V,\n}\n#[derive(Debug, clap::Args)]\nstruct Flags {\n    /// A flag.\n    #[arg(long)]\n    f: bool,\n}\n"
        'const S: Setting = Setting { help: "Text of a setting" };\n#[cfg(test)]\nmod tests {\n/// T.\npub fn t() {}\n}\n'
    )
    documentation, helps = rust("a.rs", source)
    assert [p.text for p in documentation] == ["Module.", "A pub item.", "Field.", "E.", "Variant."], documentation
    assert [p.text for p in helps] == ["A flag.", "Text of a setting"], helps
    assert parse_bounds("# c\nrules 1\npages so-that 0.1\n") == (1, {("pages", "so-that"): 0.1})
    assert is_better("so-that", 0.1, 0.2) and is_better("for-example", 2, 1)
    variables.self_test()
    pages.self_test()
    print("self-test of prose passed")
    return 0


if __name__ == "__main__":
    flags = {argument for argument in sys.argv[1:] if argument.startswith("-")}
    sys.exit(self_test() if "--self-test" in flags else check(flags, [a for a in sys.argv[1:] if not a.startswith("-")]))
