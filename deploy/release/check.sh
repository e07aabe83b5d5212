#!/usr/bin/env bash
# Makes a release from a clean clone of the last commit, and uses each of its files as their users will. Nothing leaves this machine.
# PROFILE names cargo's profile: `dist`, unless something else is said. CARGO_TARGET_DIR may name a folder to build in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root="$PWD"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
step() { printf '%4d s  %s\n' "$SECONDS" "$1"; }

step "clone the last commit"
git clone --quiet --no-hardlinks "$root" "$work/clone"
cd "$work/clone"
# Tools of others change with their versions only.
mkdir -p .cache/go
[ -d "$root/.cache/go/bin" ] && cp -r "$root/.cache/go/bin" .cache/go/
[ -d "$root/.cache/cargo/bin" ] && mkdir -p .cache/cargo && cp -r "$root/.cache/cargo/bin" .cache/cargo/
unset HELM
python3 deploy/release/versions.py "${VERSION:-}"

step "build the archive, the wheel, the bill of materials and the chart"
deploy/release/build.sh "$work/out"
[ -z "$(git status --porcelain)" ] || { git status --short; echo "the build changed files of the tree" >&2; exit 1; }

step "package the crates, and compile each package by itself"
cargo package --workspace --exclude pumice-counts --locked --quiet

step "check the licences of the crates"
make --no-print-directory supply

step "check the sums"
cd "$work/out"
sha256sum --check --quiet SHA256SUMS-*

step "take a first decision from the archive"
tar -xzf pumice-*.tar.gz -C "$work"
program="$(echo "$work"/pumice-*/pumice)"
started="$SECONDS"
"$program" demo --color never >"$work/demo.txt"
((SECONDS - started < 60)) || { echo "the first decision took $((SECONDS - started)) s" >&2; exit 1; }
"$program" --version | grep -F "(commit $(git -C "$work/clone" rev-parse HEAD | cut -c -12))"
readelf --sections --wide "$program" | grep -qF .dep-v0 || { echo "the program has no list of its crates" >&2; exit 1; }
test -s "$(dirname "$program")/THIRD-PARTY-LICENSES.txt" -a -x "$(dirname "$program")/kubectl-pumice"
"$program" schema policy >/dev/null
"$program" serve --config "$(dirname "$program")/systemd/pumice.yaml" --print-config >/dev/null
test -s "$(dirname "$program")/man/pumice.1" -a -s "$(dirname "$program")/completions/pumice.bash"

step "take a first decision from the wheel"
python3 -m venv "$work/venv"
started="$SECONDS"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check ./*.whl
"$work/venv/bin/pumice" demo --color never >/dev/null
((SECONDS - started < 60)) || { echo "the first decision took $((SECONDS - started)) s" >&2; exit 1; }
(cd "$work" && "$work/venv/bin/python" -c "import pumice; pumice.task(cpu=1)")

step "render the chart of the release"
"$work/clone/.cache/go/bin/helm-v3.22.0" template pumice pumice-*.tgz --kube-version v1.36.3 >/dev/null

step "count the bill of materials"
python3 -c 'import glob, json; (name,) = glob.glob("*.cyclonedx.json"); count = len(json.load(open(name))["components"]); print(count, "components"); assert count > 100'
step "done"
