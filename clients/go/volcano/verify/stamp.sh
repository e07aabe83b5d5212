#!/usr/bin/env bash
# The stamp of the last comparison with Volcano, which CI cannot repeat: it has no source of Volcano.
# stamp.sh check: fails if the adapter's sources are not those that were compared. stamp.sh sources: prints their hash.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
stamp="$here/stamp.txt"
cd "$here/../.."
# The adapter, and the packages of the Go client that it uses; generated messages do not count.
now="$(go run ./internal/sources volcano volcano/plugins/* cycle derive .)"
field() { sed -n "s/^$1: //p" "$stamp"; }

case "${1:-check}" in
sources) echo "$now" ;;
check)
  [ -f "$stamp" ] || { echo "volcano/verify/stamp.txt is missing: run volcano/verify/run.sh" >&2; exit 1; }
  if [ "$(field sources)" != "$now" ]; then
    cat >&2 <<TEXT
The code of the adapter for Volcano, or of the Go client that it uses, has changed since it was compared with Volcano
($(field volcano | cut -c1-9), $(field date)): its hash is $now, in volcano/verify/stamp.txt it is $(field sources).
Compare it, and commit the stamp:
  git clone https://github.com/volcano-sh/volcano DIR && git -C DIR checkout $(field volcano)
  VOLCANO=DIR CLUSTERS=$(field clusters) SEEDS="$(field seeds)" clients/go/volcano/verify/run.sh
TEXT
    exit 1
  fi
  [ "$(field differences)" = 0 ] || { echo "volcano/verify/stamp.txt has differences" >&2; exit 1; }
  echo "The adapter for Volcano is the one that was compared: $(field calls) calls, no difference (Volcano $(field volcano | cut -c1-9), $(field date))"
  ;;
*) echo "usage: stamp.sh check|sources" >&2; exit 2 ;;
esac
