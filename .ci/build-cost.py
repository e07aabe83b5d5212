#!/usr/bin/env python3
"""Measures what a commit costs to build: cold, in a folder of its own, with nothing that an earlier build left.

    .ci/build-cost.py                                   what `make demo` costs at HEAD
    .ci/build-cost.py OLD NEW --pairs 3                 two commits in turn, with the ratio of each pair
    .ci/build-cost.py HEAD --run "make demo" --run "cargo test --locked --workspace --no-run"
                                                        steps in one folder, one after the other

It prints processor time (user and system, of all processes), wall time, the number of compiled packages, and the twenty
compilation units that took the most processor time. Processor time is what two commits are compared by: it depends less
than wall time on what else the machine does. Sources of dependencies are downloaded before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNITS_SHOWN = 20

# Runs the compiler and adds its processor time to the record of units.
WRAPPER = r"""#!/usr/bin/env bash
"$@"
code=$?
name=- kind=lib
previous=
for argument in "$@"; do
  case "$previous" in
    --crate-name) name=$argument ;;
    --crate-type) kind=$argument ;;
  esac
  [ "$argument" = --test ] && kind=test
  previous=$argument
done
if [ "$name" != - ] && [ "$name" != ___ ]; then
  # A subshell would have times of its own, so they go by way of a file.
  times >"$PUMICE_BUILD_UNITS.$$"
  { read -r _; read -r user system; } <"$PUMICE_BUILD_UNITS.$$"
  rm -f "$PUMICE_BUILD_UNITS.$$"
  echo "${CARGO_PKG_NAME:--} ${CARGO_PKG_VERSION:--} $name $kind $user $system" >>"$PUMICE_BUILD_UNITS"
fi
exit $code
"""


def run(arguments: list[str], **options: object) -> str:
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


def seconds(text: str) -> float:
    minutes, rest = text.rstrip("s").split("m")
    return int(minutes) * 60 + float(rest)


def units(record: Path) -> list[tuple[float, str, str]]:
    """Processor time, package with version, and unit, of each compilation."""
    found = []
    for line in record.read_text().splitlines() if record.exists() else []:
        package, version, name, kind, user, system = line.split()
        found.append((seconds(user) + seconds(system), f"{package} {version}", f"{name} ({kind})"))
    return found


def build(commit: str, steps: list[str], folder: Path) -> list[tuple[float, float, list[tuple[float, str, str]]]]:
    """Builds a commit in an empty folder; a row for each step."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder / "source")])
    source = folder / "source"
    run(["git", "checkout", "--quiet", commit], cwd=source)
    run(["cargo", "fetch", "--locked", "--quiet"], cwd=source)
    wrapper = folder / "unit"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO_TARGET", "RUSTC_", "RUSTFLAGS"))}
    environment |= {"RUSTC_WRAPPER": str(wrapper), "CARGO_TARGET_DIR": str(folder / "target")}
    rows = []
    for number, step in enumerate(steps):
        record = folder / f"units-{number}"
        environment["PUMICE_BUILD_UNITS"] = str(record)
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with (folder / f"log-{number}").open("w") as log:
            code = subprocess.run(shlex.split(step), cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
        if code != 0:
            sys.exit(f"`{step}` of {commit} ended with {code}: see {folder / f'log-{number}'}")
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows.append((processor, wall, units(record)))
    shutil.rmtree(folder / "target", ignore_errors=True)
    return rows


def report(commit: str, steps: list[str], rows: list[tuple[float, float, list[tuple[float, str, str]]]]) -> None:
    for step, (processor, wall, compiled) in zip(steps, rows, strict=True):
        packages = {package for _, package, _ in compiled}
        print(f"{commit}  {step}: {processor:.0f} s of processor time, {wall:.0f} s of wall time, {len(packages)} packages in {len(compiled)} units", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a commit costs to build cold.")
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="one commit, or two that are built in turn")
    parser.add_argument("--run", action="append", dest="steps", metavar="COMMAND", help="what is run in the checkout (default: make demo); repeat it for further steps in the same folder")
    parser.add_argument("--pairs", type=int, default=1, help="how often each commit is built (default: 1)")
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / "build-cost", help="where it is built")
    parser.add_argument("--units", type=int, default=UNITS_SHOWN, help=f"how many units are shown (default: {UNITS_SHOWN})")
    options = parser.parse_args()
    commits = [run(["git", "rev-parse", "--short=10", commit], cwd=ROOT) for commit in options.commits or ["HEAD"]]
    if len(commits) > 2:
        parser.error("one commit or two")
    steps = options.steps or ["make demo"]
    totals: dict[str, list[list[float]]] = {commit: [] for commit in commits}
    last = {}
    for _ in range(options.pairs):
        for commit in commits:
            rows = build(commit, steps, options.folder.resolve() / commit)
            report(commit, steps, rows)
            totals[commit].append([processor for processor, _, _ in rows])
            last[commit] = rows
    for commit in commits:
        for step, (_, _, compiled) in zip(steps, last[commit], strict=True):
            print(f"\n{commit}  {step}: the units that took the most processor time")
            for processor, package, unit in sorted(compiled, reverse=True)[: options.units]:
                print(f"{processor:8.1f} s  {package:32}  {unit}")
    if len(commits) == 2:
        old, new = (totals[commit] for commit in commits)
        print()
        for number, step in enumerate(steps):
            ratios = [b[number] / a[number] for a, b in zip(old, new, strict=True)]
            print(f"{step}: ratios {' '.join(f'{ratio:.3f}' for ratio in ratios)}, median {statistics.median(ratios):.3f}")
        ratios = [sum(b) / sum(a) for a, b in zip(old, new, strict=True)]
        print(f"all steps: ratios {' '.join(f'{ratio:.3f}' for ratio in ratios)}, median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
