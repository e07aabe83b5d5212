#!/bin/sh
# Compiles the crates that read what others send with counters of coverage and with recorded comparisons, and those only: cargo calls it
# in place of rustc (RUSTC_WORKSPACE_WRAPPER). Build scripts stay as they are, because nothing links libFuzzer to them.
rustc="$1"
shift
case " $* " in
*" --crate-name pumice "* | *" --crate-name pumice_engine "* | *" --crate-name pumice_state "* | *" --crate-name pumice_kubernetes "* | \
  *" --crate-name pumice_protocol "* | *" --crate-name pumice_fuzz "* | *" --crate-name fuzz_"*) ;;
*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares
