#!/usr/bin/env bash
# Checks that other modules can fetch the Go modules: renames them in a copy, serves the copy as a file-based module proxy, and
# builds a small program against each module from an empty module. The configured proxy serves all other modules.
# VOLCANO names a directory with Volcano's source; without it the module for Volcano is fetched and not built.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
path="example.test/group/pumice/clients/go"
version="v0.1.0"
work="$(mktemp -d)"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

echo "renaming the modules in a copy"
mkdir "$work/copy" "$work/proxy"
(cd "$root" && git ls-files -co --exclude-standard -z clients proto docs Makefile README.md CONTRIBUTING.md | xargs -0 cp --parents -t "$work/copy")
[ ! -e "$root/.cache" ] || ln -s "$root/.cache" "$work/copy/.cache"
for wrong in "" pumice/clients/go host.example; do
  if "$here/module-path.sh" "$wrong" "$work/copy" 2>"$work/message"; then
    echo "module path \"$wrong\" was accepted" >&2; exit 1
  fi
  grep -q "host with a dot" "$work/message"
done
old="$(awk '$1 == "module" { print $2; exit }' "$here/go.mod")"
"$work/copy/clients/go/module-path.sh" "$path"
if grep -rnF --exclude-dir=.cache -- "$old" "$work/copy"; then echo "the old module path is left" >&2; exit 1; fi

echo "packing the modules"
python3 - "$work" "$path" "$version" <<'PYTHON'
import json, pathlib, sys, zipfile

work, path, version = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
top = work / "copy" / "clients" / "go"
modules = sorted(found.parent for found in top.rglob("go.mod"))
for module in modules:
    name = "/".join([path, *module.relative_to(top).parts])
    target = work / "proxy" / name / "@v"
    target.mkdir(parents=True)
    (target / "list").write_text(version + "\n")
    (target / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    (target / f"{version}.mod").write_bytes((module / "go.mod").read_bytes())
    inner = [other for other in modules if other != module and module in other.parents]
    with zipfile.ZipFile(target / f"{version}.zip", "w") as packed:
        for file in sorted(module.rglob("*")):
            if file.is_file() and not any(other in file.parents for other in inner):
                packed.write(file, f"{name}@{version}/{file.relative_to(module)}")
PYTHON

export GOFLAGS=-mod=mod GOWORK=off GONOSUMDB=example.test GOPROXY
GOPROXY="file://$work/proxy,$(go env GOPROXY)"
# Go keeps an index of each fetched version, also of one that was fetched under the same name before.
export GODEBUG=goindex=0
GOMODCACHE_OWN="$(go env GOMODCACHE)"
# What was fetched under this path by an earlier run is another copy.
chmod -R u+w "$GOMODCACHE_OWN/example.test" "$GOMODCACHE_OWN/cache/download/example.test" 2>/dev/null || true
rm -rf "$GOMODCACHE_OWN/example.test" "$GOMODCACHE_OWN/cache/download/example.test"

# fetch NAME IMPORT USE builds a program with one import in an empty module.
fetch() {
  echo "fetching $2"
  mkdir "$work/$1" && cd "$work/$1"
  go mod init outside.example/program 2>/dev/null
  go get "$2@$version" 2>&1 | grep -v '^go: \(downloading\|added\)' || true
  printf 'package main\n\nimport used "%s"\n\nfunc main() { %s }\n' "$2" "$3" >main.go
  go build -o program .
}
fetch core "$path" 'client, err := used.Dial("127.0.0.1:7461", used.Options{}); if err == nil { _ = client.Close() }'
fetch kubescheduler "$path/kubescheduler" '_ = used.Registry()'

echo "fetching $path/volcano"
if [ -n "${VOLCANO:-}" ]; then
  mkdir "$work/fork" && cp -r "$VOLCANO/." "$work/fork" && chmod -R u+w "$work/fork" && cd "$work/fork"
  go get "$path/volcano@$version" 2>&1 | grep -v '^go: \(downloading\|added\|upgraded\)' || true
  go build "$path/volcano"
else
  # A fork of Volcano is the module volcano.sh/volcano itself and has volcano.sh/apis beside it.
  mkdir -p "$work/fork/apis" && cd "$work/fork"
  printf 'module volcano.sh/apis\n\ngo 1.26.0\n' >apis/go.mod
  go mod init volcano.sh/volcano 2>/dev/null
  go mod edit -replace volcano.sh/apis=./apis -require "$path/volcano@$version"
  go mod download "$path/volcano" "$path"
  [ "$(go list -m -f '{{.Version}}' "$path/volcano")" = "$version" ]
fi
echo "the modules can be fetched"
