#!/usr/bin/env bash
# Builds the programs of Go that targets compare with, into .cache/fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v go >/dev/null || { echo "go is missing: install Go (https://go.dev/dl); it runs yaml.v2 and apimachinery beside the fuzzer" >&2; exit 1; }
mkdir -p .cache/fuzz
for name in yaml quantity; do
  (cd "tests/$name" && go build -o "../../.cache/fuzz/$name" .)
done
