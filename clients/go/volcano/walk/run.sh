#!/usr/bin/env bash
# Builds vc-scheduler with the adapter, as the README of the adapter says, and walks: VOLCANO=DIR run.sh [step…].
# PUMICE_BIN names the server; without it, target/debug/pumice of this project. WALK_FOLDER keeps logs and data.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../../.." && pwd)"
: "${VOLCANO:?names a directory with the whole source of Volcano}"
volcano="$(cd "$VOLCANO" && pwd)"
server="${PUMICE_BIN:-$root/target/debug/pumice}"
[ -x "$server" ] || { echo "$server is missing: run cargo build, or name the program in PUMICE_BIN" >&2; exit 1; }
folder="${WALK_FOLDER:-$(mktemp -d)/walk}"
programs="$("$root/clients/go/kubescheduler/e2e/control-plane.sh")"

# A fork: the source of Volcano with the changes that the README of the adapter names.
work="$root/.cache/walk"
scheduler="${WALK_SCHEDULER:-$work/vc-scheduler}"
if [ -z "${WALK_SCHEDULER:-}" ]; then
  rm -rf "$work/fork"
  mkdir -p "$work/fork"
  cp -r "$volcano"/{cmd,pkg,staging,third_party,go.mod,go.sum} "$work/fork/"
  cp -r "$root/clients/go" "$work/fork/staging/pumice"
  (
    cd "$work/fork"
    go mod edit -require github.com/pumice-scheduler/pumice/clients/go/volcano@v0.1.0 \
      -replace github.com/pumice-scheduler/pumice/clients/go/volcano=./staging/pumice/volcano \
      -replace github.com/pumice-scheduler/pumice/clients/go=./staging/pumice
    sed -i -e 's|^import ($|import (\n\tpumice "github.com/pumice-scheduler/pumice/clients/go/volcano"|' \
      -e 's|^func main() {$|func main() {\n\tpumice.Register()|' cmd/scheduler/main.go
    CGO_ENABLED=0 go build -mod=mod -buildvcs=false -p "${WALK_JOBS:-2}" -ldflags "-s -w" -o "$scheduler" ./cmd/scheduler
  )
fi
exec python3 -u "$here/walk.py" --volcano "$volcano" --scheduler "$scheduler" --programs "$programs" --pumice "$server" --folder "$folder" "$@"
