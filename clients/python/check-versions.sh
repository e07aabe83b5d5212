#!/usr/bin/env bash
# Runs the client's tests with the lowest versions that pyproject.toml allows, and with the newest there are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(cd ../.. && pwd)"
python="${PYTHON:-python3}"
export PYTHONPATH=src
for resolution in lowest-direct highest; do
  home="$root/.cache/python-$resolution"
  # Versions of another day are another test.
  rm -rf "$home"
  "$python" -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.9.7
  "$home/bin/uv" pip compile --quiet --resolution "$resolution" --extra numpy pyproject.toml --output-file "$home/versions.txt" --no-header --no-annotate
  "$home/bin/uv" pip install --quiet --python "$home/bin/python" --requirements "$home/versions.txt" pytest pytest-asyncio
  echo "$resolution: $(tr '\n' ' ' <"$home/versions.txt")"
  "$home/bin/python" -m pytest -q -m "not network"
done
