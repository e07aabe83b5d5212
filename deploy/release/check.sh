#!/usr/bin/env bash
# Makes a release from a clean clone of the last commit, and uses each of its files as their users will. Nothing leaves this machine.
# PROFILE names cargo's profile: `dist`, unless something else is said. CARGO_TARGET_DIR may name a folder to build in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root="$PWD"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
step() { printf '%4d s  %s\n' "$SECONDS" "$1"; }
# Runs a command that gives a first decision, and says how long that took.
first_decision() {
  local what="$1" started="$EPOCHREALTIME"
  shift
  "$@" >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2; exit 1; }
  awk -v what="$what" -v started="$started" -v ended="$EPOCHREALTIME" \
    'BEGIN { printf "        %s: %.1f s\n", what, ended - started; exit ended - started >= 60 }' || { echo "that is a minute or more" >&2; exit 1; }
}

step "clone the last commit"
git clone --quiet --no-hardlinks "$root" "$work/clone"
cd "$work/clone"
# Tools of others change with their versions only.
mkdir -p .cache/go
[ -d "$root/.cache/go/bin" ] && cp -r "$root/.cache/go/bin" .cache/go/
[ -d "$root/.cache/cargo/bin" ] && mkdir -p .cache/cargo && cp -r "$root/.cache/cargo/bin" .cache/cargo/
unset HELM
python3 deploy/release/versions.py "${VERSION:-}"

step "check that the adapter for Volcano was compared with each release"
clients/go/volcano/verify/stamp.sh check

step "build the archive, the wheel, the bill of materials and the chart"
deploy/release/build.sh "$work/out"
[ -z "$(git status --porcelain)" ] || { git status --short; echo "the build changed files of the tree" >&2; exit 1; }

step "package the crates, and compile each package by itself"
# One folder for all of them, so that each dependency is compiled once.
CARGO_TARGET_DIR="$PWD/target" cargo publish --dry-run --workspace --exclude pumice-counts --locked --quiet

step "check the licences of the crates"
make --no-print-directory supply

step "check the sums"
cd "$work/out"
sha256sum --check --quiet SHA256SUMS-*

step "take a first decision from the archive"
tar -xzf pumice-*.tar.gz -C "$work"
program="$(echo "$work"/pumice-*/pumice)"
first_decision "pumice demo" "$program" demo --color never
"$program" --version | grep -F "(commit $(git -C "$work/clone" rev-parse HEAD | cut -c -12))"
readelf --sections --wide "$program" | grep -qF .dep-v0 || { echo "the program has no list of its crates" >&2; exit 1; }
test -s "$(dirname "$program")/THIRD-PARTY-LICENSES.txt" -a -x "$(dirname "$program")/kubectl-pumice"
"$program" schema policy >/dev/null
"$program" serve --config "$(dirname "$program")/systemd/pumice.yaml" --print-config >/dev/null
"$(dirname "$program")/pumice-lab" --version
test -s "$(dirname "$program")/man/pumice.1" -a -s "$(dirname "$program")/completions/pumice.bash"

step "take a first decision from the wheel"
wheel="$(echo "$PWD"/pumice-*.whl)"
install_and_decide() {
  python3 -m venv "$work/venv" && "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  "$work/venv/bin/pumice" demo --color never
}
first_decision "pip install pumice, pumice demo" install_and_decide
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
UV_CACHE_DIR="$work/uv" first_decision "uvx pumice demo" "$work/venv/bin/uvx" --quiet --from "$wheel" pumice demo --color never
(cd "$work" && "$work/venv/bin/python" -c "import pumice; pumice.task(cpu=1)")

step "render the chart of the release"
"$work/clone/.cache/go/bin/helm-v3.22.0" template pumice pumice-*.tgz --kube-version v1.37.2 >/dev/null

step "count the bill of materials"
python3 -c 'import glob, json; (name,) = glob.glob("*.cyclonedx.json"); count = len(json.load(open(name))["components"]); print(count, "components"); assert count > 100'
step "done"
