#!/usr/bin/env bash
# Builds etcd, the API server of Kubernetes and kube-scheduler with Pumice's plugin, and schedules pods with them on this
# machine. Nothing is skipped: what is missing is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$(cd ../../.. && pwd)"
server="${PUMICE_BIN:-$root/target/debug/pumice}"
[ -x "$server" ] || { echo "$server is missing: run cargo build, or name the program in PUMICE_BIN" >&2; exit 1; }
bin="$(e2e/control-plane.sh)"
CGO_ENABLED=0 PUMICE_BIN="$server" E2E_BIN="$bin" go test -mod=readonly -tags e2e -count=1 -v -timeout "${E2E_TIMEOUT:-20m}" ./e2e "$@"
