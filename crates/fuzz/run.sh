#!/usr/bin/env bash
# Runs targets of the fuzzer under libFuzzer, each for a while, and reports executions, coverage and findings.
#
#   TARGET=NAME   one target; otherwise all
#   SECONDS=N     time of each target (20)
#   RUNS=N        executions of each target, in place of a time
#   MERGE=1       puts the inputs of .cache/fuzz/corpus that reach new code into crates/fuzz/corpus afterwards
#
# The toolchain is the ordinary one: rustc hands LLVM's pass for coverage to the crates of this workspace (instrument.sh), and the
# crate libfuzzer-sys builds libFuzzer itself with the C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo="${CARGO:-cargo}"
work="$PWD/.cache/fuzz"
corpus="$PWD/crates/fuzz/corpus"
programs=(fuzz-quick fuzz-documents fuzz-engine fuzz-services)

# bash counts the variable SECONDS itself: the Makefile hands it over by another name.
seconds="${FUZZ_SECONDS:-20}"
limit=("-max_total_time=$seconds")
[ -z "${RUNS:-}" ] || limit=("-runs=$RUNS")

crates/fuzz/go.sh
RUSTC_WORKSPACE_WRAPPER="$PWD/crates/fuzz/instrument.sh" "$cargo" build --locked --quiet --profile fuzz --package pumice-fuzz \
  --features coverage "${programs[@]/#/--bin=}"
listed="$("$cargo" run --locked --quiet --package pumice-fuzz --bin fuzz-list)"
if [ -n "${TARGET:-}" ]; then
  listed="$(grep "^$TARGET " <<<"$listed" || true)"
  [ -n "$listed" ] || { echo "there is no target $TARGET" >&2; exit 1; }
fi

findings=0 total=0
printf '%-18s %12s %8s %9s %9s\n' target executions edges features findings
while read -r target program most _; do
  own="$work/corpus/$target" found="$work/findings/$target" log="$work/$target.log"
  mkdir -p "$own" "$found" "$corpus/$target"
  before="$(find "$found" -type f | wc -l)"
  code=0
  "target/fuzz/$program" "--target=$target" "$own" "$corpus/$target" "${limit[@]}" -max_len="$most" -timeout=25 -rss_limit_mb=3000 \
    -artifact_prefix="$found/" -print_final_stats=1 -reload=0 >"$log" 2>&1 </dev/null || code=$?
  executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)"
  covered="$(grep -ao 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)"
  new=$(($(find "$found" -type f -not -name 'slow-unit-*' | wc -l) - before))
  ((code == 0 || new > 0)) || new=1
  printf '%-18s %12s %8s %9s %9s\n' "$target" "${executions:-?}" "$(cut -d' ' -f2 <<<"$covered")" "$(cut -d' ' -f4 <<<"$covered")" "$new"
  ((code == 0)) || { grep -a -A3 -E 'panicked at|ERROR: libFuzzer' "$log" | head -12; echo "  $log, $found"; }
  findings=$((findings + new))
  total=$((total + ${executions:-0}))
  if [ "${MERGE:-}" = 1 ]; then
    merged="$(mktemp -d)"
    "target/fuzz/$program" "--target=$target" -set_cover_merge=1 -max_len="$most" "$merged" "$corpus/$target" "$own" >>"$log" 2>&1 </dev/null
    # A clone carries the corpus: the smallest inputs, by far the most of what is reached.
    find "$merged" -type f -printf '%s %f\n' | sort -n | head -100 | while read -r _ name; do
      cp -n "$merged/$name" "$corpus/$target/$name"
    done
    rm -rf "$merged"
  fi
done <<<"$listed"
echo "$total executions, $findings findings"
((findings == 0))
