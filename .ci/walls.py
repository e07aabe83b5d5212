#!/usr/bin/env python3
"""Two walls that no crate boundary keeps: only the folder of plugins names a plugin, and no folder of the service refers
to one above it. Tests, those of the fuzzer among them, are about single plugins and start whole servers, so they are left out; so are the demo,
the list of the plugins that Volcano's configuration may name (policy/spec.rs), and the rows of the page of codes, which say who gives a code (model/codes.rs)."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = "crates/engine/src/plugins"
FOLDERS = ["app", "config", "server", "telemetry", "limits"]  # each above the ones after it
# Names of plugins that are also fields of Kubernetes objects.
FIELDS = {"capacity", "priority"}
LEFT_OUT = re.compile(rf"^{PLUGINS}/|(^|[/_])tests?(\.rs|/)|^crates/simulation/src/demo/|^crates/counts/|^crates/fuzz/|^crates/engine/src/(policy/spec|model/codes)\.rs")


def sources() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "src/*.rs", "crates/*/src/*.rs"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [name for name in listed.stdout.split() if not LEFT_OUT.search(name)]
    if not files:
        sys.exit("walls: there are no sources to look at")
    return files


def code(name: str) -> str:
    """Text of a file without comments and without its own tests, which stand in a module at its end."""
    text = (ROOT / name).read_text()
    text = re.split(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{", text, maxsplit=1, flags=re.M)[0]
    return re.sub(r"//[^\n]*", "", text)


def plugin_patterns() -> list[re.Pattern[str]]:
    modules = "|".join(re.findall(r"^(?:pub )?mod (\w+);", (ROOT / PLUGINS / "mod.rs").read_text(), flags=re.M))
    own = "".join(path.read_text() for path in (ROOT / PLUGINS).rglob("*.rs"))
    names = re.findall(r'PluginDef::new\("([^"/]+)"', own) + re.findall(r'const (?:NAME|PLUGIN): &(?:\'static )?str = "([^"/]+)"', own)
    return [
        re.compile(rf"\bplugins::(?:{modules})\b"),
        re.compile(rf"\bplugins::\{{[^}}]*\b(?:{modules})\b"),
        re.compile("|".join(f'"{re.escape(name)}"' for name in sorted(set(names) - FIELDS))),
    ]


# Names of plugins that are also the field's own words: a field of nodes, a command, a reason code, a message.
OTHER_MEANINGS = {
    ("crates/engine/src/decide/builtin_filters.rs", '"NodeUnschedulable"'),
    ("crates/protocol/src/generated/pumice.v1.rs", '"NodeAffinity"'),
    ("crates/kubernetes/src/import/misspelt.rs", '"capacity"'),
    ("src/cli/examples.rs", '"capacity"'),
    # The format itself says whose argument the resources of an extender extend.
    ("crates/engine/src/policy/kube/extenders.rs", '"NodeResourcesFit"'),
}


def main() -> None:
    found = []
    patterns = plugin_patterns()
    for name in sources():
        text = code(name)
        matches = (match for pattern in patterns for match in pattern.finditer(text))
        for match in (match for match in matches if (name, match[0]) not in OTHER_MEANINGS):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: names a plugin; let the plugin say it as data (PluginDef, PluginAccounts, RecordRules): {match[0]}")
        folder = name.split("/")[1] if name.startswith("src/") else ""
        above = "|".join(FOLDERS[: FOLDERS.index(folder)]) if folder in FOLDERS else ""
        for match in re.finditer(rf"\bcrate::(?:{above})\b", text) if above else ():
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: refers to a folder above its own: {match[0]}")
    if found:
        sys.exit("\n".join(found))


main()
