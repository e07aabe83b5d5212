#!/usr/bin/env bash
# Writes a go.mod that builds this module with the Volcano of a directory: modfile.sh VOLCANO_DIR OUT_DIR.
# Then: go test -mod=mod -modfile OUT_DIR/go.mod ./…
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
volcano="$(cd "$1" && pwd)"
out="$2"
mkdir -p "$out"
cp "$volcano/go.mod" "$out/go.mod"
cat "$volcano/go.sum" "$here/../go.sum" | sort -u >"$out/go.sum"
cd "$here"
go mod edit -module github.com/pumice-scheduler/pumice/clients/go/volcano \
  -require volcano.sh/volcano@v0.0.0 -replace "volcano.sh/volcano=$volcano" \
  -replace "volcano.sh/apis=$volcano/staging/src/volcano.sh/apis" \
  -require github.com/pumice-scheduler/pumice/clients/go@v0.1.0 -replace "github.com/pumice-scheduler/pumice/clients/go=$(dirname "$here")" "$out/go.mod"
