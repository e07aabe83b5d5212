#!/usr/bin/env bash
# Counts the instructions of the hot paths under callgrind, with the kernels that every processor of the kind has, and the
# allocations of whole calls under dhat: `counts.sh check` compares with benches/counts.txt, `counts.sh record` rewrites it.
# Instructions count inside one function, which runs a path after its first run. Allocations have no such switch: a path is run N
# and 2N times, and what differs is what N runs take.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

recorded=benches/counts.txt
percent=3
mode="${1:-check}"
case "$mode" in
check | record) ;;
*) echo "usage: counts.sh check|record" >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || {
  echo "valgrind is missing: install it (apt-get install valgrind), it counts the instructions" >&2
  exit 1
}

cargo="${CARGO:-cargo}"
built="$("$cargo" build --locked --quiet --release --package pumice-counts --features portable \
  --message-format json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)"
[ -x "$built" ] || { echo "cargo did not say where the program is that it built" >&2; exit 1; }
rustc="$(rustc --version)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# The C library copies and fills memory by other instructions on each processor; with these features off, by the same on all.
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM

# Instructions of a path that is run a given number of times.
instructions() {
  valgrind --tool=callgrind --toggle-collect=counts::measured --callgrind-out-file="$folder/out" "$built" "$1" "$2" 2>"$folder/log" || {
    cat "$folder/log" >&2
    return 1
  }
  awk '/Collected/ { print $NF }' "$folder/log"
}

# Allocations of a path that is run a given number of times.
allocations() {
  valgrind --tool=dhat --dhat-out-file="$folder/out" "$built" "$1" "$2" 2>"$folder/log" || {
    cat "$folder/log" >&2
    return 1
  }
  awk '/Total:/ { gsub(/,/, ""); print $(NF - 1) }' "$folder/log"
}

# Paths whose runs are short are run more often.
times() {
  case "$1" in
  call_*) echo 500 ;;
  place* | admit | cycle*) echo 1 ;;
  publish | hdrf_event) echo 50 ;;
  *) echo 5 ;;
  esac
}

# The paths are independent: as many at a time as there are cores.
count() {
  local path="$1" n once twice
  n="$(times "$path")"
  folder="$folder/$path"
  mkdir -p "$folder"
  once="$(instructions "$path" "$n")"
  [ "${once:-0}" -gt 0 ] || { echo "$path: no instruction was counted inside counts::measured" >&2; return 1; }
  echo "$path $((once / n))"
  case "$path" in
  call_*)
    once="$(allocations "$path" "$n")"
    twice="$(allocations "$path" $((2 * n)))"
    # To the nearest: what happens now and then besides is less than one a call.
    echo "${path}_allocations $(((twice - once + n / 2) / n))"
    ;;
  esac
}

paths="$("$built" list)"
export -f count instructions allocations times
export built folder
printf '%s\n' $paths | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'count {}' >"$folder/counts"
for path in $paths; do
  grep -E "^$path(_allocations)? " "$folder/counts" || { echo "$path was not counted" >&2; exit 1; }
done >"$folder/sorted"

if [ "$mode" = record ]; then
  {
    echo "# Instructions of one run of each hot path, and allocations of calls, rewritten by: make counts-record"
    echo "rustc: $rustc"
    cat "$folder/sorted"
  } >"$recorded"
  cat "$recorded"
  exit
fi

before="$(sed -n 's/^rustc: //p' "$recorded")"
awk -v percent="$percent" '
  function share(now, then) { return 100 * (now - then) / then }
  FNR == NR { if ($1 !~ /^(#|rustc:)$/) then[$1] = $2; next }
  FNR == 1 { printf "%-30s%14s%14s%9s\n", "path", "recorded", "now", "change" }
  !($1 in then) { printf "%-30s%14s%14d   not recorded, not judged\n", $1, "", $2; next }
  {
    change = share($2, then[$1])
    # One allocation more is one too many; fewer are recorded.
    off = $1 ~ /_allocations$/ ? $2 != then[$1] : change > percent || change < -percent
    bad = bad || off
    printf "%-30s%14d%14d%+8.2f%%%s\n", $1, then[$1], $2, change, off ? "  beyond the bound" : ""
    delete then[$1]
  }
  END { for (path in then) { printf "%-30s%14d   gone\n", path, then[path]; bad = 1 } exit bad }
' "$recorded" "$folder/sorted" && exit 0

if [ "$before" != "$rustc" ]; then
  echo "NOT JUDGED: recorded with $before, counted with $rustc. Another compiler counts otherwise; make counts-record records it." >&2
  exit 0
fi
echo "instructions differ by more than $percent % from $recorded, or allocations do: find out why, or record them with make counts-record" >&2
exit 1
