#!/usr/bin/env bash
# Checks deploy/: renders the chart and the manifests, has a real API server accept them, runs what they say with the server
# of this tree, and asks a real Prometheus for every panel and alert. Nothing is skipped: what is missing is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(cd ../.. && pwd)"
need() { command -v "$1" >/dev/null || { echo "$1 is missing: $2" >&2; exit 1; }; }
need go "install Go 1.26 or newer (https://go.dev/dl)"
need python3 "install Python 3.10 or newer"
need unshare "install util-linux"
need ip "install iproute2"
need openssl "install openssl"
need curl "install curl"
need kubectl "install kubectl: the README's commands use it"
need systemd-analyze "install systemd: it checks the unit"
((EUID == 0)) || { echo "the check runs containers in namespaces of its own: run it as root" >&2; exit 1; }

HELM_VERSION=v3.22.0
KUSTOMIZE_VERSION=v5.8.1
ACTIONLINT_VERSION=v1.7.12
tool() {
  local bin="$root/.cache/go/bin/$2"
  [ -x "$bin" ] || { echo "building $1" >&2; GOBIN="$root/.cache/go/bin" GOFLAGS=-mod=mod go install -p 2 "$1"; mv "${bin%-v*}" "$bin"; }
  echo "$bin"
}
export PUMICE_BIN="${PUMICE_BIN:-$root/target/debug/pumice}"
[ -x "$PUMICE_BIN" ] || { echo "$PUMICE_BIN is missing: run cargo build, or name the program in PUMICE_BIN" >&2; exit 1; }
HELM="$(tool "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" "helm-$HELM_VERSION")"
KUSTOMIZE="$(tool "sigs.k8s.io/kustomize/kustomize/v5@$KUSTOMIZE_VERSION" "kustomize-$KUSTOMIZE_VERSION")"
ACTIONLINT="$(tool "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT_VERSION" "actionlint-$ACTIONLINT_VERSION")"
CONTROL_PLANE="$("$root/clients/go/kubescheduler/e2e/control-plane.sh")"
PROMETHEUS="$root/.cache/debian-prometheus/usr/bin"
./debian.sh "$root/.cache/debian-prometheus" prometheus
export HELM KUSTOMIZE ACTIONLINT CONTROL_PLANE PROMETHEUS

home="$root/.cache/deploy"
[ -x "$home/bin/python" ] || python3 -m venv "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
export PATH="$home/bin:$PATH"
ruff format --check . ../supply ../release
ruff check . ../supply ../release
mypy . ../supply/*.py ../release/*.py
pytest --quiet "$@"
