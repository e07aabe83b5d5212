#!/usr/bin/env bash
# Compares the figures of two reports: compare.sh OLD NEW, files that `make bench` wrote.
set -euo pipefail
[ $# = 2 ] || { echo "usage: compare.sh OLD NEW" >&2; exit 2; }
for file in "$@"; do
  [ -n "$file" ] || { echo "name both reports: make bench-compare OLD=FILE [NEW=FILE]" >&2; exit 2; }
  [ -r "$file" ] || { echo "$file cannot be read" >&2; exit 1; }
done

# One key per line: `  "key": value,`.
awk '
  { sub(/,$/, "") }
  !/^  "/ { next }
  {
    key = $1; gsub(/[":]/, "", key)
    value = $0; sub(/^[^:]*: */, "", value)
  }
  FILENAME == ARGV[1] { old[key] = value; order[++count] = key; next }
  { seen[key] }
  value ~ /^"/ || value ~ /^(true|false)$/ {
    if (old[key] != value) printf "%-46s%14s  was %s\n", key, value, (key in old) ? old[key] : "not there"
    next
  }
  key in old && old[key] + 0 != 0 { printf "%-46s%14s%14s%+9.1f%%\n", key, old[key], value, 100 * (value - old[key]) / old[key]; next }
  { printf "%-46s%14s%14s\n", key, (key in old) ? old[key] : "-", value }
  END {
    for (at = 1; at <= count; at++)
      if (!(order[at] in seen)) printf "%-46s%14s%14s\n", order[at], old[order[at]], "-"
  }
' "$1" "$2"
