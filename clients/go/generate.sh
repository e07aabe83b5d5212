#!/usr/bin/env bash
# Writes the messages of the protocol as Go code: generate.sh [DIR]. buf comes from npm, its plugins from `go install`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(cd ../.. && pwd)"
into="${1:-$PWD}"
tools="$root/.cache/go"

make --no-print-directory -C "$root" .cache/buf/node_modules/.bin/buf >/dev/null
GOBIN="$tools" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$tools" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
PATH="$tools:$PATH" "$root/.cache/buf/node_modules/.bin/buf" generate "$root/proto" --output "$into" --template '
version: v2
managed:
  enabled: true
  override:
    - {file_option: go_package, path: pumice/v1, value: github.com/pumice-scheduler/pumice/clients/go/pumicev1}
plugins:
  - {local: protoc-gen-go, out: ., opt: [module=github.com/pumice-scheduler/pumice/clients/go]}
  - {local: protoc-gen-go-grpc, out: ., opt: [module=github.com/pumice-scheduler/pumice/clients/go]}
'
