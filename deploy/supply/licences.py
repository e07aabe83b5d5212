"""Writes the licences of others that the released programs contain; `--check` compares.

THIRD-PARTY-LICENSES.txt has those of the server's crates, clients/go/kubescheduler/THIRD-PARTY-LICENSES.txt those of
the modules in kube-scheduler with the plugin.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEDULER = ROOT / "clients" / "go" / "kubescheduler"
# Names of files with licences, and of those with notices: of a package, and of the code of others that it carries.
LICENCES = re.compile(r"^(licen[cs]e|copying|unlicense)(?!.*\.(docs|go|rs|json)$)", re.IGNORECASE)
NOTICES = re.compile(r"^(notice|patents|copyright)(?!.*\.(go|rs|json)$)", re.IGNORECASE)
# Folders whose code is in no program.
UNUSED = {"tests", "benches", "examples"}
# Platforms of the releases.
PLATFORMS = ("--target", "x86_64-unknown-linux-gnu", "--target", "aarch64-unknown-linux-gnu")
ARCHITECTURES = ("amd64", "arm64")
# Where a crate leaves the choice, the first of these is chosen: its texts are equal but for their owners.
CHOICES = ("Apache-2.0", "MIT", "Zlib", "BSD-3-Clause")
# What a text says, by the licence that says it. A module of Go names its licence by its text only.
PHRASES = {
    "Apache-2.0": "Apache License Version 2.0",
    "MIT": "Permission is hereby granted, free of charge",
    "ISC": "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee",
    "BSD-3-Clause": "may be used to endorse or promote products derived from",
    "BSD-2-Clause": "Redistribution and use in source and binary forms",
}


class LicenceError(Exception):
    """A package whose licence is none that the project accepts."""


def read_text(path: Path) -> str:
    """A file without spaces at the ends of its lines."""
    return "\n".join(line.rstrip() for line in path.read_text(errors="replace").strip().splitlines())


def licence_files(folder: Path) -> list[Path]:
    """Files of one folder with licences and notices."""
    names = (path for path in sorted(folder.iterdir()) if LICENCES.match(path.name) or NOTICES.match(path.name))
    return [path for path in names if path.is_file()]


def cargo(*arguments: str) -> str:
    """What cargo prints."""
    command = [os.environ.get("CARGO", "cargo"), *arguments, "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def linked_crates() -> set[str]:
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


def crate_texts(folder: Path, licence: str) -> list[str]:
    """Licences and notices of a crate, of those to choose from only the chosen one, and of the code that it carries."""
    found = licence_files(folder)
    if licence in CHOICES:
        wanted = {"Apache-2.0": "apache", "MIT": "mit", "Zlib": "zlib", "BSD-3-Clause": "bsd"}[licence]
        named = [path for path in found if wanted in path.name.lower()]
        notices = [path for path in found if path.name.lower().startswith(("notice", "copyright"))]
        found = sorted({*named, *notices}) if named else found
    for below in sorted(path for path in folder.rglob("*") if path.is_dir()):
        if not UNUSED & set(below.relative_to(folder).parts):
            found += licence_files(below)
    return list(dict.fromkeys(read_text(path) for path in found))


def crates() -> Iterator[tuple[str, str, list[str]]]:
    """Each crate in the server: its name and version, what is said of it, its texts."""
    linked = linked_crates()
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        if f"{package['name']} v{package['version']}" not in linked or package["source"] is None:
            continue
        licence = chosen(package["license"] or "")
        found = crate_texts(Path(package["manifest_path"]).parent, licence)
        said = f"{licence}{'' if found else ' (the package has no text)'}, {package['repository'] or ''}"
        yield f"{package['name']} {package['version']}", said, found


def go(*arguments: str, architecture: str = ARCHITECTURES[0]) -> str:
    """What Go prints about the plugin's module."""
    platform = {"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture}
    done = subprocess.run(
        ["go", *arguments], cwd=SCHEDULER, env={**os.environ, **platform}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LicenceError(f"go {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def module_folders() -> dict[tuple[str, str], tuple[Path, set[Path]]]:
    """The folder of each module in kube-scheduler with the plugin, and those of its packages that are used."""
    form = "{{if not .Standard}}{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}\t{{.Dir}}{{end}}"
    found: dict[tuple[str, str], tuple[Path, set[Path]]] = {}
    for architecture in ARCHITECTURES:
        listed = go(
            *("list", "-mod=readonly", "-deps", "-f", form, "./cmd/pumice-kube-scheduler"), architecture=architecture
        )
        for line in filter(None, listed.splitlines()):
            name, version, folder, package = line.split("\t")
            if not Path(folder).is_relative_to(ROOT / "clients"):
                found.setdefault((name, version), (Path(folder), set()))[1].add(Path(package))
    return found


def module_files(folder: Path, packages: set[Path]) -> list[Path]:
    """Files with licences and notices of a module: those beside the packages that are used, and above them."""
    folders = {folder}
    for package in packages:
        folders |= {package, *(above for above in package.parents if above.is_relative_to(folder))}
    return [path for below in sorted(folders) for path in licence_files(below)]


def licences_of(name: str, files: list[Path]) -> str:
    """Licences of a module, by the texts of its files; each file with a licence has to be one that is accepted."""
    found = set()
    for path in (path for path in files if LICENCES.match(path.name)):
        words = " ".join(path.read_text(errors="replace").split())
        says = {licence for licence, phrase in PHRASES.items() if phrase in words}
        if not says:
            raise LicenceError(f"{name}: {path} is none of {', '.join(PHRASES)}: decide whether the project accepts it")
        # The longer of the two licences of one origin says all that the shorter one says.
        found |= says - ({"BSD-2-Clause"} if "BSD-3-Clause" in says else set())
    if not found:
        raise LicenceError(f"{name} has no file with a licence")
    return " and ".join(sorted(found))


def modules() -> Iterator[tuple[str, str, list[str]]]:
    """Each module in kube-scheduler with the plugin, and Go's own library."""
    library = Path(go("env", "GOROOT").strip())
    known = {("the standard library of", "Go"): (library, {library}), **module_folders()}
    for (name, version), (folder, packages) in sorted(known.items()):
        files = module_files(folder, packages)
        texts = list(dict.fromkeys(read_text(path) for path in files))
        yield f"{name} {version}", licences_of(name, files), texts


def page(about: str, packages: Iterator[tuple[str, str, list[str]]]) -> str:
    """Content of a file: the packages, then each text with the packages that it is of."""
    lines: list[str] = []
    users: dict[str, list[str]] = {}
    for name, said, texts in packages:
        lines.append(f"{name}: {said}")
        for text in texts:
            users.setdefault(text, []).append(name)
    parts = [about, "\n".join(lines)]
    for text, names in sorted(users.items(), key=lambda item: item[1]):
        parts.append(f"{'=' * 100}\nOf {', '.join(names)}:\n\n{text}")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Content of each file."""
    of_server = (
        "Pumice contains these crates, and the standard library of Rust (Apache-2.0).\n"
        "Where a crate leaves the choice of its licence, the one named here is chosen."
    )
    of_scheduler = (
        "kube-scheduler with Pumice's plugin contains these modules. Their licences are found by their texts."
    )
    return {
        ROOT / "THIRD-PARTY-LICENSES.txt": page(of_server, crates()),
        SCHEDULER / "THIRD-PARTY-LICENSES.txt": page(of_scheduler, modules()),
    }


def main(check: bool) -> int:
    """Writes or compares the files."""
    try:
        current = pages()
    except LicenceError as error:
        print(error, file=sys.stderr)
        return 1
    wrong = [path for path, text in current.items() if not path.is_file() or path.read_text() != text]
    for path in wrong:
        if check:
            print(f"{path.relative_to(ROOT)} is not current: run python3 deploy/supply/licences.py", file=sys.stderr)
        else:
            path.write_text(current[path])
    return 1 if check and wrong else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
