#!/usr/bin/env bash
# Builds the programs of the images for the other architecture of the releases, and runs them under an emulator: the demo makes
# real calls and checks each result. VECTORS=1 also compares the decisions with the recorded ones of the real schedulers.
# PROFILE names cargo's profile: `dev`, unless something else is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
profile="${PROFILE:-dev}"
case "$(uname -m)" in
  x86_64) other=aarch64 ;;
  aarch64) other=x86-64 ;;
  *) echo "releases have no program for $(uname -m)" >&2; exit 1 ;;
esac
# Debian and Rust spell one of the two in two ways.
triple="${other/-/_}-unknown-linux-gnu"
compiler="${other/-/_}-linux-gnu-gcc"
emulator="qemu-${other/-/_}"
libraries="/usr/${other/-/_}-linux-gnu"
packages="gcc-$other-linux-gnu qemu-user"
if ! command -v "$compiler" "$emulator" >/dev/null && ((EUID == 0)) && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086
  apt-get update -qq && apt-get install -qq --yes --no-install-recommends $packages "libc6-dev-${other/aarch64/arm64}-cross" >/dev/null
fi
for tool in "$compiler" "$emulator"; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: install $packages" >&2; exit 1; }
done
rustup target add "$triple" 2>/dev/null

name="${triple//-/_}"
export "CC_$name=$compiler"
export "CARGO_TARGET_${name^^}_LINKER=$compiler"
export "CARGO_TARGET_${name^^}_RUNNER=$emulator -L $libraries"
cargo build --locked --profile "$profile" --target "$triple" --bin pumice
program="${CARGO_TARGET_DIR:-target}/$triple/${profile/#dev/debug}/pumice"

needed="$("$compiler" -dumpmachine)-readelf"
unknown="$("${needed}" --dynamic "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libm|libgcc_s|libdl|libpthread|ld-linux[a-z0-9-]*)\.so' || true)"
[ -z "$unknown" ] || { echo "the base image has no $unknown" >&2; exit 1; }
"$emulator" -L "$libraries" "$program" --version
"$emulator" -L "$libraries" "$program" demo --color never | tail -1
if [ -n "${VECTORS:-}" ]; then
  cargo test --locked --quiet --profile "$profile" --target "$triple" --test recorded -- vectors::run --exact --nocapture
fi

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
case "$other" in aarch64) architecture=arm64 ;; *) architecture=amd64 ;; esac
GOARCH="$architecture" clients/go/kubescheduler/build.sh "$out"
# A program of Go needs no library.
"$emulator" "$out/usr/local/bin/pumice-kube-scheduler" --version
