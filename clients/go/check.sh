#!/usr/bin/env bash
# Checks the Go client: generated code current, format, vet, tests with a real server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
command -v go >/dev/null || { echo "go is missing: install Go 1.24 or newer (https://go.dev/dl)" >&2; exit 1; }

fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
./generate.sh "$fresh"
diff -ru pumicev1 "$fresh/pumicev1" || { echo "generated code is not current: run clients/go/generate.sh" >&2; exit 1; }
unformatted="$(gofmt -l .)"
[ -z "$unformatted" ] || { echo "not formatted: $unformatted" >&2; exit 1; }
go mod tidy -diff
go vet ./...
# With the detector of races wherever the C compiler that it needs is there.
race=()
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then race=(-race); fi
go test "${race[@]}" -count=1 ./...
go test -run '^$' -bench . -benchtime 100x .
./module-path-check.sh
volcano/verify/stamp.sh check

# The adapter for Volcano needs Volcano's source, which no registry has.
if [ -n "${VOLCANO:-}" ]; then
  volcano/verify/run.sh
else
  echo "NOT BUILT, NOT RUN: clients/go/volcano (the adapter, and its comparison with the in-tree plugins): VOLCANO is not set to a directory with Volcano's source. Its stamps were checked."
fi
