#!/usr/bin/env bash
# Makes a release from a clean clone of the last commit, and uses each of its files as a stranger will who has nothing else: programs,
# wheel, image, chart, crates, modules of Go. Nothing leaves this machine.
# PROFILE names cargo's profile: `dist`, unless something else is said. CARGO_TARGET_DIR may name a folder to build in, and OUT one that
# is made for the files, once all of them are checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
need() { command -v "$1" >/dev/null || { echo "$1 is missing: $2" >&2; exit 1; }; }
need go "install Go 1.26 or newer (https://go.dev/dl)"
need python3 "install Python 3.10 or newer"
need unshare "install util-linux"
need ip "install iproute2"
((EUID == 0)) || { echo "the check runs the image in namespaces of its own: run it as root" >&2; exit 1; }
export PROFILE="${PROFILE:-dist}" CARGO_INCREMENTAL=0
root="$PWD"
work="$(mktemp -d)"
server=""
trap '[ -z "$server" ] || kill "$server" || true; rm -rf "$work"' EXIT
step() { printf '%4d s  %s\n' "$SECONDS" "$1"; }
# Runs a command that gives a first decision, and says how long that took.
first_decision() {
  local what="$1" started="$EPOCHREALTIME"
  shift
  "$@" >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2; exit 1; }
  awk -v what="$what" -v started="$started" -v ended="$EPOCHREALTIME" \
    'BEGIN { printf "        %s: %.1f s\n", what, ended - started; exit ended - started >= 60 }' || { echo "that is a minute or more" >&2; exit 1; }
  tail -1 "$work/said.txt"
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
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)"
# As in build.sh: the image then has nothing to compile.
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
PUMICE_COMMIT="$(git rev-parse HEAD)"
export SOURCE_DATE_EPOCH PUMICE_COMMIT

step "check that the adapter for Volcano was compared with each release"
clients/go/volcano/verify/stamp.sh check

step "build the archive, the wheel, the bill of materials and the chart"
deploy/release/build.sh "$work/out"
[ -z "$(git status --porcelain)" ] || { git status --short; echo "the build changed files of the tree" >&2; exit 1; }

step "check the licences of the crates"
make --no-print-directory supply

step "check the sums"
cd "$work/out"
sha256sum --check --quiet SHA256SUMS-*

step "take a first decision from the archive"
tar -xzf pumice-*.tar.gz -C "$work"
program="$(echo "$work"/pumice-*/pumice)"
first_decision "pumice demo" "$program" demo --color never
"$program" --version | grep -F "(commit ${PUMICE_COMMIT:0:12})"
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

step "take a first decision from the chart and the image"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check PyYAML
HELM="$work/clone/.cache/go/bin/helm-v3.22.0" CHART="$(echo "$PWD"/pumice-*.tgz)" \
  first_decision "the chart's pod, pumice filter" "$work/venv/bin/python" "$work/clone/deploy/check/first_pod.py" "$program"

step "count the bill of materials"
python3 -c 'import glob, json; (name,) = glob.glob("*.cyclonedx.json"); count = len(json.load(open(name))["components"]); print(count, "components"); assert count > 100'

step "take a first decision from the crates, without a registry"
cd "$work/clone"
crates="$work/crates"
cargo publish --dry-run --no-verify --workspace --exclude pumice-counts --locked --quiet --target-dir "$crates/packages"
# A folder in place of crates.io: the packages, and the crates of others. All packages are compiled by the profile of the workspace, as
# the packages of its members have none, so that each dependency is compiled once.
mkdir "$crates/.cargo"
cargo vendor --locked --quiet "$crates/registry" >/dev/null
packages=()
for file in $(find "$crates/packages" -name "*-$version.crate"); do
  package="$crates/registry/$(basename "$file" .crate)"
  packages+=("$package")
  tar -xzf "$file" -C "$crates/registry"
  printf '{"files":{},"package":"%s"}' "$(sha256sum "$file" | cut -d ' ' -f 1)" >"$package/.cargo-checksum.json"
done
{
  printf '[source.crates-io]\nreplace-with = "files"\n[source.files]\ndirectory = "%s"\n' "$crates/registry"
  sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml
} >"$crates/.cargo/config.toml"
cd "$crates"
export CARGO_TARGET_DIR="$crates/target"
# It reads no settings of the folder that it runs in.
cargo install --config .cargo/config.toml --locked --offline --quiet --debug --root "$crates" pumice
first_decision "cargo install pumice, pumice demo" "$crates/bin/pumice" demo --color never
step "compile each package by itself"
for package in "${packages[@]}"; do
  cargo build --locked --offline --quiet --manifest-path "$package/Cargo.toml"
done

step "build kube-scheduler with the plugin, as for its image"
"$work/clone/clients/go/kubescheduler/build.sh" "$work/scheduler"
"$work/scheduler/usr/local/bin/pumice-kube-scheduler" --version

step "take a first decision with the modules of Go, by replace and by tag"
"$program" serve --grpc-socket "$work/pumice.sock" --grpc-address 127.0.0.1:0 --http-address 127.0.0.1:0 2>"$work/serve.txt" &
server=$!
timeout 20 sh -c "until [ -S '$work/pumice.sock' ]; do sleep 0.1; done"
cd "$work/clone"
clients="$(sed -n 's/^module //p' clients/go/go.mod)"
# The repository as it will be with its tags; modules of others come from what this machine has, and from their proxy.
git clone --quiet --bare . "$work/tagged.git"
for file in $(git ls-files 'clients/**/go.mod'); do git -C "$work/tagged.git" tag "$(dirname "$file")/v$version"; done
# Compiles one of our programs in a module of its own: in_module NAME PROGRAM COMMAND..., which names our module.
in_module() {
  mkdir "$work/$1"
  cp "$work/clone/clients/go/$2" "$work/$1/main.go"
  (cd "$work/$1" && go mod init example.org/stranger && "${@:3}" && go build -mod=mod -trimpath -o program .) >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2; exit 1; }
}
export PUMICE_SERVER="unix:$work/pumice.sock"
in_module replaced examples/first/main.go go mod edit -require="$clients@v$version" -replace="$clients=$work/clone/clients/go"
first_decision "replace $clients" "$work/replaced/program"
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE="$work/modules" GOFLAGS="-modcacherw $(go env GOFLAGS)" GOPRIVATE="${clients%/clients/go}"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/tagged.git.insteadOf" GIT_CONFIG_VALUE_0="https://${clients%/clients/go}"
in_module tagged examples/first/main.go go get "$clients@v$version"
first_decision "go get $clients@v$version" "$work/tagged/program"
# To compile it takes the source of Volcano, which no registry has: `make walk` does.
go mod download "$clients/volcano@v$version"

step "build kube-scheduler with the plugin by tag"
in_module scheduler-tagged kubescheduler/cmd/pumice-kube-scheduler/main.go go get "$clients/kubescheduler@v$version"
"$work/scheduler-tagged/program" --version

[ -z "${OUT:-}" ] || cp -r "$work/out" "$OUT"
step "done: nothing was published. With rights to push: git tag v$version && git push origin v$version (docs/reference/supply-chain.md)"
