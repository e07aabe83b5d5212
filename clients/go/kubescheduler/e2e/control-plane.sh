#!/usr/bin/env bash
# Builds etcd and the API server of Kubernetes, once per version, and prints the folder that has them. `etcd-with-disk-faults` is the same
# etcd, whose disk a test can make slow or full (testdata/etcd-disk/flush.go).
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
flush="e2e/testdata/etcd-disk/flush.go"
if [ ! "$bin/etcd-with-disk-faults" -nt "$flush" ]; then
  part="$bin/etcd-with-disk-faults.part"
  mkdir -p "$part"
  cp -r "$(go list -mod=readonly -m -f '{{.Dir}}' go.etcd.io/etcd/client/pkg/v3)/." "$part/client"
  chmod -R u+w "$part/client"
  cp "$flush" "$part/client/fileutil/sync_linux.go"
  cp go.sum "$part/etcd.sum"
  { cat go.mod; echo "replace go.etcd.io/etcd/client/pkg/v3 => $part/client"; } >"$part/etcd.mod"
  go build -modfile="$part/etcd.mod" -p "${E2E_JOBS:-2}" -ldflags "$(./version-flags.sh)" -o "$part/etcd" go.etcd.io/etcd/server/v3 >&2
  mv "$part/etcd" "$bin/etcd-with-disk-faults"
  rm -rf "$part"
fi
echo "$bin"
