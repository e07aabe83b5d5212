#!/usr/bin/env bash
# Installs a tool of the supply chain at one exact version, and prints its path: tools.sh cargo-deny|cargo-auditable|govulncheck
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools="$PWD/.cache/cargo"
crate() {
  [ -x "$tools/bin/$1-$2" ] || { cargo install "$1" --version "$2" --locked --quiet --debug --root "$tools" --target-dir "$tools/target" >&2 && mv "$tools/bin/$1" "$tools/bin/$1-$2" && rm -rf "$tools/target"; }
  echo "$tools/bin/$1-$2"
}
case "${1:?a tool}" in
  cargo-deny) crate cargo-deny 0.20.2 ;;
  cargo-auditable) crate cargo-auditable 0.7.7 ;;
  govulncheck)
    bin="$PWD/.cache/go/bin"
    [ -x "$bin/govulncheck-v1.9.0" ] || { GOBIN="$bin" GOFLAGS=-mod=mod go install golang.org/x/vuln/cmd/govulncheck@v1.9.0 && mv "$bin/govulncheck" "$bin/govulncheck-v1.9.0"; }
    echo "$bin/govulncheck-v1.9.0"
    ;;
  *) echo "no tool $1" >&2; exit 2 ;;
esac
