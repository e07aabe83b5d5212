#!/usr/bin/env bash
# Prints the size of the built console, and fails above 400 kB compressed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/dist"

most=400000
total=0
while read -r file; do
  size=$(gzip -9 --stdout "$file" | wc -c)
  total=$((total + size))
  printf '%8d bytes compressed  %s\n' "$size" "$file"
done < <(find . -type f | sort)
printf '%8d bytes compressed, of at most %d\n' "$total" "$most"
((total <= most)) || { echo "the console is too large: leave a package out, or load less of it" >&2; exit 1; }
