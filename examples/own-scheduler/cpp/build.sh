#!/usr/bin/env bash
# Generates the stubs and compiles the scheduler: build.sh INTO. Debian: apt install g++ libgrpc++-dev protobuf-compiler-grpc
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
proto="$here/../../../proto"
mkdir -p "$1"
cd "$1"
protoc -I "$proto" --cpp_out=. --grpc_out=. --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" \
  "$proto"/pumice/v1/{types,state,decision}.proto
printf '%s\n' pumice/v1/*.cc "$here/own_scheduler.cc" |
  xargs -P "$(nproc)" -I '{}' sh -c 'g++ -std=c++17 -Wall -I. -c "$1" -o "$(basename "$1" .cc).o"' sh '{}'
# shellcheck disable=SC2046
g++ -o own_scheduler ./*.o $(pkg-config --libs grpc++ protobuf)
