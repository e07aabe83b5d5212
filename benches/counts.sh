#!/usr/bin/env bash
# Counts the instructions of the hot paths with callgrind, on the kernels that every processor of the kind can run, and
# compares them with benches/counts.txt: they are the same from run to run, where times are not.
# counts.sh [--record]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

recorded="benches/counts.txt"
tolerance=3
few=20
many=60
out="target/counts"
mkdir -p "$out"

command -v valgrind >/dev/null || { echo "valgrind is missing: install it with the system's packages" >&2; exit 1; }

binary="$(cargo bench --locked --quiet --no-run --bench counts --features portable --message-format=json |
  sed -n 's/.*"name":"counts".*"executable":"\([^"]*\)".*/\1/p' | tail -1)"
[ -x "$binary" ] || { echo "the bench counts was not built" >&2; exit 1; }

instructions() {
  local log="$out/$1-$2.log"
  valgrind --tool=callgrind --callgrind-out-file="$out/$1-$2.out" "$binary" "$1" "$2" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
  sed -n 's/^summary: \([0-9]*\).*/\1/p; s/^totals: \([0-9]*\).*/\1/p' "$out/$1-$2.out" | tail -1
}

measured="$out/counts.txt"
{
  echo "# Instructions per run of the hot paths (benches/counts.rs), portable kernels, by valgrind's callgrind."
  echo "rustc $(rustc --version | cut -d' ' -f2)"
} >"$measured"
for path in $("$binary" list); do
  a="$(instructions "$path" "$few")"
  b="$(instructions "$path" "$many")"
  echo "$path $(((b - a) / (many - few)))" >>"$measured"
done

if [ "${1:-}" = "--record" ]; then
  cp "$measured" "$recorded"
  cat "$recorded"
  exit 0
fi

awk -v tolerance="$tolerance" '
  /^#/ { next }
  NR == FNR { recorded[$1] = $2; next }
  $1 == "rustc" {
    if ($2 != recorded["rustc"]) {
      printf "recorded with rustc %s, measured with %s: record anew (benches/counts.sh --record)\n", recorded["rustc"], $2
      bad = 1
    }
    next
  }
  !($1 in recorded) { printf "%s: %d, not recorded\n", $1, $2; bad = 1; next }
  {
    change = ($2 / recorded[$1] - 1) * 100
    verdict = (change > tolerance || change < -tolerance) ? "OUT OF BOUNDS" : "ok"
    printf "%-24s %12d recorded %12d  %+6.2f %%  %s\n", $1, $2, recorded[$1], change, verdict
    if (verdict != "ok") bad = 1
  }
  END { exit bad }
' "$recorded" "$measured"
