#!/usr/bin/env bash
# Checks the plugin of kube-scheduler: format, vet, tests with kube-scheduler's own framework and a real server.
# `check.sh newest` leaves the release before the newest out. `check.sh compare` only compares decisions with the plugins of both releases:
# PUMICE_COMPARE_CLUSTERS clusters under each configuration, from the seed PUMICE_COMPARE_SEED on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
command -v go >/dev/null || { echo "go is missing: install Go 1.26 or newer (https://go.dev/dl)" >&2; exit 1; }
# Without cgo what is compiled here is what `make e2e` links: once for both.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=readonly"
# The release before the newest.
former=(-modfile=go.kubernetes-1.36.mod -tags kubernetes_1_36)
if [ "${1:-}" = compare ]; then
  go test "${former[@]}" -count=1 -timeout 0 -v ./compare
  go test -count=1 -timeout 0 -v ./compare
  exit
fi

unformatted="$(gofmt -l .)"
[ -z "$unformatted" ] || { echo "not formatted: $unformatted" >&2; exit 1; }
go vet ./...
go vet -tags e2e ./e2e
go test -count=1 ./...
# The derivation of requests, with the newest types of Kubernetes: the client's own module has those of its oldest user.
go test -count=1 github.com/pumice-scheduler/pumice/clients/go/derive
[ "${1:-}" != newest ] || exit 0
go vet "${former[@]}" . ./cmd/... ./compare
go test "${former[@]}" -count=1 . ./compare
