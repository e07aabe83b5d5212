#!/usr/bin/env bash
# Renames the Go modules: module-path.sh NEW [ROOT]. NEW is the path of clients/go, such as host.example/group/pumice/clients/go.
# It rewrites files of modules (*.mod), imports, generate.sh, scripts and pages, and generates the messages again.
set -euo pipefail
new="${1:-}"
root="$(cd "${2:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd)"
go="$root/clients/go"
# Go fetches a module only if the first element of its path is a host with a dot.
if ! [[ "$new" =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$ ]]; then
  echo "module path \"$new\": is no path under a host with a dot; give one such as make module-path NEW=host.example/pumice/clients/go" >&2
  exit 1
fi
old="$(awk '$1 == "module" { print $2; exit }' "$go/go.mod")"
[ "$old" != "$new" ] || { echo "the module path is $new already"; exit 0; }
pattern="${old//./\\.}"
# A longer path that only begins with the old one, or ends with it, is another module.
find "$root" \( -name .git -o -name .cache -o -name target -o -name node_modules -o -name pumicev1 \) -prune -o \
  -type f \( -name '*.go' -o -name '*.mod' -o -name '*.sh' -o -name '*.md' -o -name Makefile \) -print0 |
  xargs -0 grep -lZ -- "$old" |
  xargs -0 perl -pi -e "s{(?<![\\w./-])$pattern(?![\\w-])}{$new}g"
"$go/generate.sh"
gofmt -w "$go"
echo "the Go modules are $new, $new/kubescheduler and $new/volcano"
