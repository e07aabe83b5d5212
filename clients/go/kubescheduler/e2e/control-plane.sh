#!/usr/bin/env bash
# Builds etcd and the API server of Kubernetes, once per version, and prints the folder that has them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$(cd ../../.. && pwd)"
command -v go >/dev/null || { echo "go is missing: install Go 1.26 or newer (https://go.dev/dl)" >&2; exit 1; }
export CGO_ENABLED=0

# The programs of others change with their versions only.
key="$( { go env GOVERSION; cat go.sum; } | sha256sum | cut -c1-16)"
bin="$root/.cache/e2e/$key"
if [ ! -x "$bin/kube-apiserver" ] || [ ! -x "$bin/etcd" ]; then
  echo "building etcd and kube-apiserver into $bin: minutes the first time" >&2
  flags="$(./version-flags.sh)"
  rm -rf "$root/.cache/e2e"
  mkdir -p "$bin.part"
  go build -mod=readonly -p "${E2E_JOBS:-2}" -ldflags "$flags" -o "$bin.part/" go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver >&2
  mv "$bin.part/server" "$bin.part/etcd"
  mv "$bin.part" "$bin"
fi
echo "$bin"
