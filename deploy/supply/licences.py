"""Writes THIRD-PARTY-LICENSES.txt: the licences of all crates that are in the program. `--check` compares."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "THIRD-PARTY-LICENSES.txt"
# Names of files with licences and notices; a folder of such files counts, too.
NAMES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
# Platforms of the releases.
PLATFORMS = ("--target", "x86_64-unknown-linux-gnu", "--target", "aarch64-unknown-linux-gnu")
# Where a crate leaves the choice, the first of these is chosen: its texts are equal but for their owners.
CHOICES = ("Apache-2.0", "MIT", "Zlib", "BSD-3-Clause")


def cargo(*arguments: str) -> str:
    """What cargo prints."""
    command = [os.environ.get("CARGO", "cargo"), *arguments, "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def linked() -> set[str]:
    """Names and versions of the crates in the program; build scripts and tests have others."""
    tree = cargo(
        *("tree", "--package", "pumice", "--edges", "normal,no-proc-macro", *PLATFORMS, "--prefix", "none"),
        *("--format", "{p}"),
    )
    return {" ".join(line.split()[:2]) for line in tree.splitlines() if line}


def chosen(licence: str) -> str:
    """The licence that is chosen of an expression."""
    expression = licence.replace("/", " OR ")
    if " AND " in expression or " OR " not in expression:
        return licence
    options = [option.strip("() ") for option in expression.split(" OR ")]
    return next((choice for choice in CHOICES if choice in options), licence)


def texts(folder: Path, licence: str) -> list[str]:
    """Licences and notices of a crate, without those of the licences that are not chosen."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and NAMES.match(path.name)]
    if licence in CHOICES:
        wanted = {"Apache-2.0": "apache", "MIT": "mit", "Zlib": "zlib", "BSD-3-Clause": "bsd"}[licence]
        named = [path for path in found if wanted in path.name.lower()]
        notices = [path for path in found if path.name.lower().startswith(("notice", "copyright"))]
        found = sorted({*named, *notices}) if named else found
    read = [path.read_text(errors="replace") for path in found]
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in read]


def page() -> str:
    """Content of the file."""
    wanted = linked()
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    crates, users = [], {}
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        name = f"{package['name']} {package['version']}"
        if f"{package['name']} v{package['version']}" not in wanted or package["source"] is None:
            continue
        licence = chosen(package["license"] or "")
        found = texts(Path(package["manifest_path"]).parent, licence)
        crates.append(
            f"{name}: {licence}{'' if found else ' (the package has no text)'}, {package['repository'] or ''}"
        )
        for text in found:
            users.setdefault(text, []).append(name)
    parts = [
        "Pumice contains these crates. Where a crate leaves the choice of its licence, the one named here is chosen.",
        "\n".join(crates),
    ]
    for text, names in sorted(users.items(), key=lambda item: item[1]):
        parts.append(f"{'=' * 100}\nOf {', '.join(names)}:\n\n{text}")
    return "\n\n".join(parts) + "\n"


def main(check: bool) -> int:
    """Writes or compares the file."""
    current = page()
    if not check:
        FILE.write_text(current)
        return 0
    if FILE.is_file() and FILE.read_text() == current:
        return 0
    print(f"{FILE.name} is not current: run python3 deploy/supply/licences.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
