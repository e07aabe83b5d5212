#!/usr/bin/env bash
# Builds the server and lays out the files of the image: build.sh DIR
# PROFILE names cargo's profile: `dist`, unless something else is said.
set -euo pipefail
out="${1:?a directory for the files of the image}"
profile="${PROFILE:-dist}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The program has the list of its crates in a section of its own.
auditable="$(deploy/supply/tools.sh cargo-auditable)"
PATH="$(dirname "$auditable"):$PATH" "$auditable" auditable build --locked --profile "$profile" --bin pumice
target="${CARGO_TARGET_DIR:-target}"
# Cargo's profile `dev` builds into the folder `debug`.
built="$target/${profile/#dev/debug}/pumice"

install -D -m 755 "$built" "$out/usr/local/bin/pumice"
install -D -m 644 LICENSE "$out/usr/share/doc/pumice/LICENSE"
install -D -m 644 THIRD-PARTY-LICENSES.txt "$out/usr/share/doc/pumice/THIRD-PARTY-LICENSES.txt"
