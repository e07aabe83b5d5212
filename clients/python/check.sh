#!/usr/bin/env bash
# Checks the Python client: generated code and the blocking client current, format, lints, types, tests with a real server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(cd ../.. && pwd)"
python="${PYTHON:-python3}"
command -v "$python" >/dev/null || { echo "$python is missing: install Python 3.10 or newer" >&2; exit 1; }

home="$root/.cache/python"
[ -x "$home/bin/python" ] || "$python" -m venv "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
export PATH="$home/bin:$PATH" PYTHONPATH=src

fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
python tools/generate.py "$fresh"
for file in "$fresh"/pumice/v1/*; do
  diff -u "src/pumice/v1/${file##*/}" "$file" || { echo "generated code is not current: run python clients/python/tools/generate.py" >&2; exit 1; }
done
python tools/blocking.py "$fresh"
for file in "$fresh"/*.py; do
  diff -u "src/pumice/${file##*/}" "$file" || { echo "the blocking client is not that of asyncio: run python clients/python/tools/blocking.py" >&2; exit 1; }
done
own_scheduler=../../examples/own-scheduler/python
ruff format --check --config pyproject.toml . "$own_scheduler"
ruff check --config pyproject.toml . "$own_scheduler"
mypy
mypy "$own_scheduler/own_scheduler.py"
pytest -q -s
