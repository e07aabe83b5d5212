"""Compares what the program and its clients depend on with databases of known vulnerabilities, and writes the result,
with its date, into docs/reference/supply-chain.md. A database that cannot be had is written down as missing.

RUSTSEC_DB, GO_VULN_DB and PYPA_DB name other repositories than the public ones: an address, or a folder.
"""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "advisories"
PAGE = ROOT / "docs" / "reference" / "supply-chain.md"
BEGIN, END = "<!-- advisories: begin -->", "<!-- advisories: end -->"
RUSTSEC = "https://github.com/rustsec/advisory-db"
# Address, folders of the database that are read.
DATABASES = {
    "Rust": (os.environ.get("RUSTSEC_DB", RUSTSEC), []),
    "Go": (os.environ.get("GO_VULN_DB", "https://github.com/golang/vulndb"), ["data/osv"]),
    "Python": (os.environ.get("PYPA_DB", "https://github.com/pypa/advisory-database"), ["vulns"]),
}
# Modules of Go that releases ship or users import, without the adapter for Volcano, whose scheduler no registry has.
GO_MODULES = ("clients/go", "clients/go/kubescheduler")
PATIENCE = 900
# Results that change nothing, each with the day and the reason. Others make the run fail.
ACCEPTED = {
    "GO-2026-6061": "2026-11-25: of gRPC servers and of xDS authorization; clients/go is a client. The first version "
    "without it, 1.82.1, needs Go 1.25, and vc-scheduler is built with Go 1.24; go.mod names the least version, and "
    "programs choose a newer one, as clients/go/kubescheduler does with 1.85.0",
    "GO-2025-3521": "2026-11-25: of the kubelet's gitRepo volumes, which no scheduler mounts; no version is fixed",
    "GO-2025-3547": "2026-11-25: of the API server's handling of namespaces that end; no version is fixed",
}


class MissingError(Exception):
    """A database or a tool that cannot be had."""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    try:
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(str(error)) from error


def git_settings(*pairs: tuple[str, str]) -> dict[str, str]:
    """Variables that give git these settings."""
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def fetch(language: str) -> tuple[Path, str]:
    """A database in a folder of the cache, and its commit with the day of that."""
    address, folders = DATABASES[language]
    place = CACHE / language.lower()
    shutil.rmtree(place, ignore_errors=True)
    owned = git_settings(("safe.directory", "*"))
    if address.startswith("/"):
        # A copy may lack files that are not read here.
        place.mkdir()
        packed = place / "database.tar"
        archived = run("git", "-C", address, "archive", "--output", packed, "HEAD", *folders, env=owned)
        if archived.returncode != 0:
            raise MissingError(f"the copy cannot be read: {archived.stderr.strip()}")
        run("tar", "-xf", packed, "-C", place)
        packed.unlink()
        commit = run("git", "-C", address, "log", "-1", "--format=%h of %cs", env=owned).stdout.strip()
        return place, commit
    cloned = run("git", "clone", "--quiet", "--depth", "1", "--no-checkout", address, place, env=owned)
    if cloned.returncode != 0:
        lines = cloned.stderr.strip().splitlines()
        raise MissingError(f"the database cannot be fetched: {lines[-1] if lines else 'git failed'}")
    run("git", "checkout", "--quiet", "HEAD", "--", *(folders or ["."]), cwd=place)
    commit = run("git", "log", "-1", "--format=%h of %cs", cwd=place).stdout.strip()
    return place, commit


def rust(_: Path) -> tuple[str, list[str]]:
    """Vulnerable and unmaintained crates of Cargo.lock, by cargo-deny."""
    text = (ROOT / "deny.toml").read_text().replace("[advisories]", "[advisories]\ngit-fetch-with-cli = true")
    config = CACHE / "deny.toml"
    config.write_text(text)
    shutil.rmtree(CACHE / "advisory-db", ignore_errors=True)
    # cargo-deny fetches by itself, from an address with a domain only.
    address = DATABASES["Rust"][0]
    source = f"file://{address}" if address.startswith("/") else address
    from_copy = git_settings((f"url.{source}.insteadOf", RUSTSEC), ("safe.directory", "*"))
    deny = os.environ["CARGO_DENY"]
    checked = run(deny, "--config", config, "check", "advisories", env=from_copy)
    crates = len(re.findall(r"(?m)^\[\[package\]\]$", (ROOT / "Cargo.lock").read_text()))
    if checked.returncode == 0:
        return f"{crates} crates of Cargo.lock", []
    found = re.findall(r"(?m)^(?:error|warning)\[(\w[\w-]*)\]: (.*)$", checked.stderr)
    if not found:
        raise MissingError(f"cargo-deny: {checked.stderr.strip().splitlines()[-1]}")
    return f"{crates} crates of Cargo.lock", [f"{kind}: {text}" for kind, text in found]


def go_database(place: Path) -> Path:
    """The database in the form that govulncheck reads."""
    folder = CACHE / "go-v1"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "ID").mkdir(parents=True)
    (folder / "index").mkdir()
    modules: dict[str, list[dict[str, str]]] = {}
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for file in sorted((place / "data" / "osv").glob("GO-*.json")):
        entry = json.loads(file.read_text())
        shutil.copy(file, folder / "ID" / file.name)
        for name in sorted({affected["package"]["name"] for affected in entry["affected"]}):
            modules.setdefault(name, []).append({"id": entry["id"], "modified": today})
    (folder / "index" / "db.json").write_text(json.dumps({"modified": today}))
    listed = [{"path": name, "vulns": vulns} for name, vulns in sorted(modules.items())]
    (folder / "index" / "modules.json").write_text(json.dumps(listed))
    return folder


def go(place: Path) -> tuple[str, list[str]]:
    """Vulnerabilities that the modules of the clients call, by govulncheck."""
    database = go_database(place)
    vulnerable: list[str] = []
    for module in GO_MODULES:
        checked = run(
            *(os.environ["GOVULNCHECK"], "-format", "json", "-db", f"file://{database}", "./..."), cwd=ROOT / module
        )
        if checked.returncode != 0:
            raise MissingError(f"govulncheck in {module}: {checked.stderr.strip().splitlines()[-1]}")
        decoder, text = json.JSONDecoder(), checked.stdout.strip()
        while text:
            message, end = decoder.raw_decode(text)
            text = text[end:].lstrip()
            if one := message.get("finding"):
                called = one["trace"][0]
                # Results without a function are about code that nothing calls.
                if "function" in called:
                    fixed = one.get("fixed_version", "no version")
                    vulnerable.append(f"{module}: {one['osv']} in {called['module']}, fixed in {fixed}")
    return f"the code that {' and '.join(GO_MODULES)} call", sorted(set(vulnerable))


def python(place: Path) -> tuple[str, list[str]]:
    """Vulnerable versions among the lowest and the newest that the client was tested with."""
    import yaml

    pinned: set[tuple[str, str]] = set()
    for resolution in ("lowest-direct", "highest"):
        file = ROOT / ".cache" / f"python-{resolution}" / "versions.txt"
        if not file.is_file():
            raise MissingError("clients/python/check-versions.sh has not run")
        pinned |= set(re.findall(r"(?m)^([\w.-]+)==(\S+)", file.read_text()))
    vulnerable = []
    for name, version in sorted(pinned):
        for advisory in sorted((place / "vulns" / name.lower()).glob("*.yaml")):
            entry = yaml.safe_load(advisory.read_text())
            if any(version in affected.get("versions", []) for affected in entry["affected"]):
                vulnerable.append(f"{name} {version}: {entry['id']}")
    return ", ".join(f"{name} {version}" for name, version in sorted(pinned)), vulnerable


def row(language: str) -> tuple[str, bool]:
    """Line of the table, and whether nothing is wrong."""
    try:
        place, commit = fetch(language)
        checked, vulnerable = {"Rust": rust, "Go": go, "Python": python}[language](place)
    except MissingError as missing:
        return f"| {language} | missing: {missing} | | not checked |", False
    name = {"Rust": "RustSec", "Go": "Go vulnerability database", "Python": "PyPA"}[language]
    undecided = [one for one in vulnerable if not any(accepted in one for accepted in ACCEPTED)]
    result = "; ".join(vulnerable) or "none known"
    return f"| {language} | {name}, {commit} | {checked} | {result} |", not undecided


def main() -> int:
    """Writes the table; the exit code is 1 if something was found or is missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = [row(language) for language in DATABASES]
    table = [
        f"Last run: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.",
        "",
        "| Language | Database and its commit | Checked | Vulnerable |",
        "|---|---|---|---|",
        *(line for line, _ in rows),
        "",
        "Accepted:",
        "",
        *(f"- {one}, {reason}." for one, reason in ACCEPTED.items()),
    ]
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(table) + "\n" + END + rest.split(END)[1])
    print("\n".join(table))
    return 0 if all(good for _, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
