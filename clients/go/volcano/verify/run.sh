#!/usr/bin/env bash
# Compares the plugins with the in-tree ones of a Volcano source tree: VOLCANO=DIR run.sh [go test flags].
# MEASURE=1 also measures. PUMICE_BIN names the server; without it, target/debug/pumice of this project.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${VOLCANO:?names a directory with the source of Volcano}"
mod="$(mktemp -d)"
trap 'rm -rf "$mod"' EXIT
"$here/modfile.sh" "$VOLCANO" "$mod"
cd "$here/.."
go vet -mod=mod -modfile "$mod/go.mod" ./...
go test -count=1 -mod=mod -modfile "$mod/go.mod" -v "$@" ./verify
