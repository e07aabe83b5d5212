"""Counts variables that keep the old name of a renamed type, tuples as parameters, and documentation that echoes a name."""

from __future__ import annotations

import re

# Names that variables kept when their types got the field's words, with the type of each.
OLD_NAMES = {
    "asked": "PluginSelection",
    "asker": "PinnedClient",
    "board": "DashboardContent",
    "derived": "PluginStates?",
    "edge": "ServerContext",
    "gate": "GroupAdmitter",
    "ground": "EvaluationRef",
    "part": "ChunkSlice",
    "room": "FreeCapacity",
    "stage": "DemoHarness",
    "standing": "EvaluationContext",
    "stamp": "ResponseMetadata",
    "view": "ClusterState",
    "world": "Snapshot",
}
OLD_NAME = re.compile("|".join(rf"\b_?{name}: (?:&(?:'\w+ )?)?(?:mut )?(?:Arc<|Option<)*&?(?:\w+::)*{of}\b" for name, of in OLD_NAMES.items()))

FUNCTION = re.compile(r"\bfn \w+(?:<[^>{;]*>)?\(")
TUPLE = re.compile(r"[\w)]\s*: &?(?:'\w+ )?(?:mut )?(?:\((?!\)|dyn |impl )|\[[^\];]+; )")

DOCUMENTED = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))? )?(?:async |const |unsafe )*(?:(?P<kind>struct|enum|trait|type|fn|const|static|mod) )?(?P<name>[A-Za-z_]\w*)"
)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
FILLER = frozenset("a an the of to in for and or its this that is are by with from on as at if it be one each".split())


def stem(word: str) -> str:
    """A word without the ending of a plural or a verb."""
    for ending in ("ies", "es", "s", "ed", "ing"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e")


def old_names(text: str) -> list[int]:
    """Offsets of variables with an old name."""
    return [match.start() for match in OLD_NAME.finditer(text)]


def tuple_parameters(text: str) -> list[int]:
    """Offsets of parameters whose type is a tuple or an array."""
    found = []
    for match in FUNCTION.finditer(text):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found += [match.end() + at.start() for at in TUPLE.finditer(text[match.end() - 1 : end])]
    return found


def echoes(text: str) -> list[int]:
    """Lines with documentation of one line that has no word which its name or the name of its type lacks."""
    found = []
    lines = text.split("\n")
    container = ""
    for number, line in enumerate(lines):
        outer = re.match(r"(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait) (\w+)", line)
        container = outer[1] if outer else container
        bare = line.strip()
        is_single = bare.startswith("/// ") and not any(
            0 <= at < len(lines) and lines[at].strip().startswith("///") for at in (number - 1, number + 1)
        )
        if not is_single:
            continue
        after = number + 1
        while after < len(lines) and lines[after].strip().startswith("#["):
            after += 1
        match = DOCUMENTED.match(lines[after]) if after < len(lines) else None
        if match is None:
            continue
        known = PART.findall(match["name"]) + (PART.findall(container) if line.startswith(" ") else [])
        known = {stem(word.lower()) for word in known}
        said = {stem(word.lower()) for word in re.findall(r"[A-Za-z]+", bare[4:]) if word.lower() not in FILLER}
        if said and said <= known:
            found.append(number + 1)
    return found


def self_test() -> None:
    """Shows that each count notices what it counts."""
    source = "fn f(edge: &ServerContext, pair: (u8, u8), sizes: [u8; 2], none: ()) -> (u8, u8) {}\nfn g(context: &ServerContext, f: impl Fn((u8, u8)), done: &(dyn Fn(u8) + Sync)) {}\n"
    assert len(old_names(source)) == 1
    assert len(tuple_parameters(source)) == 2, tuple_parameters(source)
    source = "/// The nodes.\npub nodes: u8,\n/// Nodes that passed every filter.\npub nodes: u8,\npub struct NodeName {\n    /// Name of the node.\n    text_name: u8,\n}\n"
    assert echoes(source) == [1, 6], echoes(source)
