#!/usr/bin/env bash
# Makes the files of a release for the machine's architecture: build.sh DIR
# An archive of the programs with their man pages, completions and unit; the wheel; the bill of materials; the chart; their checksums.
# PROFILE names cargo's profile: `dist`, unless something else is said.
set -euo pipefail
out="$(mkdir -p "${1:?a directory for the files}" && cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
profile="${PROFILE:-dist}"
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)"
triple="$(rustc -vV | sed -n 's/^host: //p')"
name="pumice-$version-$triple"
# Equal sources give equal archives. Builds of C code read the date, too: with another one, cargo would compile again what links them.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
PUMICE_COMMIT="$(git rev-parse HEAD)"
export SOURCE_DATE_EPOCH PUMICE_COMMIT

stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
# Both programs at once, as the image's build makes the first: it and the wheel then have nothing to compile.
auditable="$(deploy/supply/tools.sh cargo-auditable)"
built="${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}"
"$auditable" auditable build --locked --quiet --profile "$profile" --package pumice --package pumice-lab-program --bins
PROFILE="$profile" deploy/docker/build.sh "$stage/image"
program="$stage/image/usr/local/bin/pumice"
root="$stage/$name"
mkdir -p "$root/completions"
cp "$program" "$built/pumice-lab" LICENSE THIRD-PARTY-LICENSES.txt CHANGELOG.md deploy/kubectl-pumice "$root/"
"$root/pumice-lab" man --dir "$root/man" >/dev/null
for shell in bash zsh fish; do "$program" completions "$shell" >"$root/completions/pumice.$shell"; done
cp -r deploy/systemd examples "$root/"
tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --directory "$stage" "$name" | gzip --no-name >"$out/$name.tar.gz"

tools="$PWD/.cache/release"
[ -x "$tools/bin/maturin" ] || { python3 -m venv "$tools" && "$tools/bin/python" -m pip install --quiet --disable-pip-version-check maturin==1.16.0; }
# The wheel has the program that is built already, with its list of crates: maturin calls cargo as the images' build does.
printf '#!/bin/sh\nexec "%s" auditable "$@"\n' "$auditable" >"$stage/cargo"
chmod +x "$stage/cargo"
CARGO="$stage/cargo" "$tools/bin/maturin" build --quiet --profile "$profile" --out "$stage/wheel"
cp "$stage"/wheel/*.whl "$out/"
python3 - "$stage"/wheel/*.whl "$out/$name.cyclonedx.json" <<'PYTHON'
import sys
import zipfile

wheel, bill = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    (name,) = [name for name in archive.namelist() if name.endswith(".cyclonedx.json")]
    open(bill, "wb").write(archive.read(name))
PYTHON

helm="${HELM:-.cache/go/bin/helm-v3.22.0}"
[ -x "$helm" ] || { GOBIN="$PWD/.cache/go/bin" GOFLAGS=-mod=mod go install helm.sh/helm/v3/cmd/helm@v3.22.0 && mv .cache/go/bin/helm "$helm"; }
"$helm" package deploy/helm/pumice --destination "$out" >/dev/null
(cd "$out" && sha256sum -- *.tar.gz *.whl *.json *.tgz >"SHA256SUMS-$triple")
ls -l "$out"
