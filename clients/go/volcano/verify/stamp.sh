#!/usr/bin/env bash
# The stamps of the last comparisons with releases of Volcano, which CI cannot repeat: it has no source of Volcano.
# stamp.sh check: fails if the adapter's sources, or the rules of releases, are not those that were compared.
# stamp.sh sources, stamp.sh rules: print the hash of those. stamp.sh release COMMIT: prints the release, or nothing.
# stamp.sh wrong RELEASE FILE: prints what keeps a file from being the release's stamp, or nothing.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here/../../../.."
# Each release that has a stamp, with its commit.
releases="
volcano-1.14.4 2160f3d687229094bb47b9b55540af711925c11c
volcano-1.15.1 0a56ed331897f5455916a44d3075671376d731d6
volcano-ed72c7c81 ed72c7c815a9fd547a787134676f73d42e9d049c"
least_calls=500000
least_seeds=3

# The adapter, and the packages of the Go client that it uses; generated messages do not count.
sources() { (cd clients/go && go run ./internal/sources volcano volcano/plugins/* cycle derive .); }
# The tables of Volcano's rules alone, without comments and layout: how they are read and named changes no decision, and what only
# kube-scheduler has is never asked.
rules() {
  local file=crates/engine/src/policy/release.rs others
  others="$(sed -n '/^const KUBE_SCHEDULER/,/^};/s/^ *\([a-z_]*\): true,$/\1/p' "$file" | paste -sd '|')"
  sed -n -e '/^const KUBE_SCHEDULER/,$d' -e 's|//.*||' -e '/^const NEWEST/,$p' "$file" | grep -Ev "^ *($others): " |
    tr -d '[:space:]' | sha256sum | cut -d ' ' -f 1
}
field() { sed -n "s/^$1: //p" "$2"; }
commit_of() { sed -n "s/^$1 //p" <<<"$releases"; }

# Prints the first thing that is wrong with a stamp, under the given hashes of sources and rules.
wrong() {
  local release="$1" stamp="$2" sources="$3" rules="$4" words
  [ -f "$stamp" ] || { echo "there is none"; return; }
  [ "$(field commit "$stamp")" = "$(commit_of "$release")" ] || { echo "it is of another commit"; return; }
  [ "$(field sources "$stamp")" = "$sources" ] || { echo "the code of the adapter, or of the Go client that it uses, has changed (its hash is $sources now)"; return; }
  [ "$(field rules "$stamp")" = "$rules" ] || { echo "the rules in crates/engine/src/policy/release.rs have changed (their hash is $rules now)"; return; }
  [ "$(field differences "$stamp")" = 0 ] || { echo "it has differences"; return; }
  [ "$(field calls "$stamp")" -ge $least_calls ] || { echo "it compares $(field calls "$stamp") calls, and $least_calls are needed; set CLUSTERS"; return; }
  read -ra words <<<"$(field seeds "$stamp")"
  [ "${#words[@]}" -ge $least_seeds ] || { echo "it has ${#words[@]} seeds, and $least_seeds are needed; set SEEDS"; return; }
}

check() {
  local release commit stamp why sources rules failed=0
  sources="$(sources)" rules="$(rules)"
  while read -r release commit; do
    stamp="clients/go/volcano/verify/stamps/$release.txt"
    why="$(wrong "$release" "$stamp" "$sources" "$rules")"
    if [ -z "$why" ]; then
      echo "The adapter is the one that was compared with $release: $(field calls "$stamp") calls, $(field cycles "$stamp") and $(field simulated "$stamp") cycles, no difference ($(field date "$stamp"))"
      continue
    fi
    failed=1
    cat >&2 <<TEXT
$stamp does not hold: $why.
Compare with that release again, and commit the stamp:
  git clone https://github.com/volcano-sh/volcano DIR && git -C DIR checkout $commit
  VOLCANO=DIR CLUSTERS=50 SEEDS="1 2 3" clients/go/volcano/verify/run.sh
TEXT
  done <<<"${releases#?}"
  return $failed
}

case "${1:-check}" in
sources) sources ;;
rules) rules ;;
release) sed -n "s/ ${2:-none}$//p" <<<"$releases" ;;
wrong) wrong "$2" "$3" "$(sources)" "$(rules)" ;;
check) check ;;
*) echo "usage: stamp.sh check|sources|rules|release COMMIT|wrong RELEASE FILE" >&2; exit 2 ;;
esac
