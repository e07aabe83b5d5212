#!/usr/bin/env bash
# Builds kube-scheduler with the plugin, and lays out the files of its image: build.sh DIR
set -euo pipefail
out="${1:?a directory for the files of the image}"
cd "$(dirname "${BASH_SOURCE[0]}")"

# kube-scheduler reports the version of Kubernetes that it was made of.
version="$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)"
minor="${version#v1.}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
done
mkdir -p "$out/usr/local/bin"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "$flags" -o "$out/usr/local/bin/" ./cmd/pumice-kube-scheduler
