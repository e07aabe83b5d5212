#!/usr/bin/env bash
# Compares the plugins with the in-tree ones of a Volcano source tree: VOLCANO=DIR run.sh [go test flags].
# CLUSTERS is the number of random clusters of each suite, SEEDS are the numbers from which they are drawn.
# With 150 clusters or more, three seeds or more, no flags and a git checkout, it writes stamp.txt.
# MEASURE=1 also measures. PUMICE_BIN names the server; without it, target/debug/pumice of this project.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${VOLCANO:?names a directory with the source of Volcano}"
export CLUSTERS="${CLUSTERS:-30}"
read -ra seeds <<<"${SEEDS:-1}"
mod="$(mktemp -d)"
trap 'rm -rf "$mod"' EXIT
"$here/modfile.sh" "$VOLCANO" "$mod"
sources="$("$here/stamp.sh" sources)"
cd "$here/.."
go vet -mod=mod -modfile "$mod/go.mod" ./...
go vet -tags shadow -mod=mod -modfile "$mod/go.mod" ./...
export COUNTS="$mod/counts"
only=()
for seed in "${seeds[@]}"; do
  echo "seed $seed"
  SEED="$seed" go test -tags shadow -count=1 -timeout 60m -mod=mod -modfile "$mod/go.mod" -v "${only[@]}" "$@" . ./verify
  # The other tests draw nothing.
  only=(-run '^(TestResourceStrategyFit|TestGangs|TestDRF|TestHierarchicalDRF|TestOursDrive|TestSimulate)$')
done
awk -F '\t' '{ calls[$1] += $2; wrong[$1] += $3; sum += $2 } END { for (hook in calls) printf "%-45s %9d calls %6d differences\n", hook, calls[hook], wrong[hook]; printf "%d in all\n", sum }' "$COUNTS" | sort

commit="$(git -C "$VOLCANO" rev-parse HEAD 2>/dev/null || true)"
if [ $# -gt 0 ] || [ "$CLUSTERS" -lt 150 ] || [ "${#seeds[@]}" -lt 3 ] || [ -z "$commit" ] || [ -n "$(git -C "$VOLCANO" status --porcelain)" ]; then
  echo "No stamp: it takes 150 clusters, three seeds, no flags, and an unchanged git checkout of Volcano"
  exit 0
fi
{
  echo "# Written by run.sh after a comparison without a difference; stamp.sh checks that the sources are still these."
  echo "volcano: $commit"
  echo "date: $(date -u +%F)"
  echo "sources: $sources"
  echo "seeds: ${seeds[*]}"
  echo "clusters: $CLUSTERS"
  # Whole cycles are no calls.
  awk -F '\t' '$1 == "whole cycles" { cycles += $2; next } $1 == "simulated cycles" { simulated += $2; next } { calls += $2; wrong += $3 }
    END { printf "calls: %d\ndifferences: %d\ncycles: %d\nsimulated: %d\n", calls, wrong, cycles, simulated }' "$COUNTS"
} >"$here/stamp.txt"
cat "$here/stamp.txt"
