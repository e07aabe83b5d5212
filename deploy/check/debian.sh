#!/usr/bin/env bash
# Unpacks packages of Debian into a folder, without installing them: debian.sh DIR PACKAGE...
set -euo pipefail
out="${1:?a folder}"
shift
[ -e "$out/.unpacked" ] && exit 0
command -v apt-get >/dev/null || { echo "apt-get is missing: put the programs of $* on the PATH" >&2; exit 1; }
# The lists may be old or absent; updating them takes root.
if ((EUID == 0)); then apt-get update -qq >&2; fi
rm -rf "$out"
mkdir -p "$out"
(cd "$out" && apt-get download -qq "$@" 2>&1 | { grep -v 'unsandboxed as root' >&2 || true; })
for package in "$out"/*.deb; do
  dpkg -x "$package" "$out"
  rm "$package"
done
touch "$out/.unpacked"
