#!/usr/bin/env bash
# Compares the plugins with the in-tree ones of a Volcano source tree, under the release of that tree: VOLCANO=DIR run.sh [go test flags].
# CLUSTERS is the number of random clusters of each suite, SEEDS are the numbers from which they are drawn.
# With a clean checkout of a release that stamp.sh lists, three seeds or more, no flags, and enough compared calls, it writes the release's stamp.
# MEASURE=1 also measures. PUMICE_BIN names the server; without it, target/debug/pumice of this project.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${VOLCANO:?names a directory with the source of Volcano}"
export CLUSTERS="${CLUSTERS:-30}"
read -ra seeds <<<"${SEEDS:-1}"
mod="$(mktemp -d)"
trap 'rm -rf "$mod"' EXIT
commit="$(git -C "$VOLCANO" rev-parse HEAD 2>/dev/null || true)"
RELEASE="$("$here/stamp.sh" release "$commit")"
export RELEASE
echo "${RELEASE:-no release that has a stamp}"
"$here/modfile.sh" "$VOLCANO" "$mod"
sources="$("$here/stamp.sh" sources)" rules="$("$here/stamp.sh" rules)"
cd "$here/.."
go vet -mod=mod -modfile "$mod/go.mod" ./...
go vet -tags shadow -mod=mod -modfile "$mod/go.mod" ./...
export COUNTS="$mod/counts"
only=()
for seed in "${seeds[@]}"; do
  echo "seed $seed"
  SEED="$seed" go test -tags shadow -count=1 -timeout 180m -mod=mod -modfile "$mod/go.mod" -v "${only[@]}" "$@" . ./verify
  # The other tests draw nothing.
  only=(-run '^(TestResourceStrategyFit|TestGangs|TestDRF|TestHierarchicalDRF|TestOursDrive|TestSimulate|TestSimulateFurtherPlugins)$')
done
awk -F '\t' '{ calls[$1] += $2; wrong[$1] += $3; sum += $2 } END { for (hook in calls) printf "%-45s %9d calls %6d differences\n", hook, calls[hook], wrong[hook]; printf "%d in all\n", sum }' "$COUNTS" | sort

# Whole cycles are no calls.
sums="$(awk -F '\t' '$1 == "whole cycles" { cycles += $2; next } $1 == "simulated cycles" { simulated += $2; next } { calls += $2; wrong += $3 }
  END { printf "calls: %d\ndifferences: %d\ncycles: %d\nsimulated: %d\n", calls, wrong, cycles, simulated }' "$COUNTS")"
stamp="$mod/stamp.txt"
{
  echo "# Written by run.sh after a comparison without a difference; stamp.sh checks that the sources and the rules are still these."
  echo "commit: $commit"
  echo "date: $(date -u +%F)"
  echo "sources: $sources"
  echo "rules: $rules"
  echo "seeds: ${seeds[*]}"
  echo "clusters: $CLUSTERS"
  echo "$sums"
} >"$stamp"
why=""
[ -n "$RELEASE" ] || why="the checkout is of no release that stamp.sh lists"
[ -z "$why" ] && [ $# -gt 0 ] && why="there were flags"
[ -z "$why" ] && [ -n "$(git -C "$VOLCANO" status --porcelain)" ] && why="the checkout is changed"
[ -z "$why" ] && why="$("$here/stamp.sh" wrong "$RELEASE" "$stamp")"
if [ -n "$why" ]; then
  echo "No stamp: $why"
  exit 0
fi
mkdir -p "$here/stamps"
cp "$stamp" "$here/stamps/$RELEASE.txt"
cat "$here/stamps/$RELEASE.txt"
