#!/usr/bin/env bash
# Prints the linker's flags with which a program of Kubernetes reports the version that it was made of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version="$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)"
minor="${version#v1.}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
done
echo "$flags"
