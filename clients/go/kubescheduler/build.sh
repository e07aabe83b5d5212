#!/usr/bin/env bash
# Builds kube-scheduler with the plugin, and lays out the files of its image: build.sh DIR
set -euo pipefail
out="${1:?a directory for the files of the image}"
cd "$(dirname "${BASH_SOURCE[0]}")"
flags="$(./version-flags.sh)"
mkdir -p "$out/usr/local/bin"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "$flags" -o "$out/usr/local/bin/" ./cmd/pumice-kube-scheduler
licences="$out/usr/share/doc/pumice-kube-scheduler"
install -D -m 644 ../../../LICENSE "$licences/LICENSE"
install -D -m 644 THIRD-PARTY-LICENSES.txt "$licences/THIRD-PARTY-LICENSES.txt"
