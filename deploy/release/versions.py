"""Checks that every file that names the version names the same one: versions.py [VERSION]; it may begin with v."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Files, each with an expression whose group is a version.
PLACES = {
    "Cargo.toml": r'(?m)^(?:version|pumice-\w+ = \{ path = "\S+", version) = "(.*)"',
    "pyproject.toml": r'(?m)^version = "(.*)"',
    "clients/python/pyproject.toml": r'(?m)^version = "(.*)"',
    "clients/go/kubescheduler/go.mod": r"/clients/go v(\S+)",
    "clients/go/kubescheduler/go.kubernetes-1.36.mod": r"/clients/go v(\S+)",
    "clients/go/volcano/go.mod": r"/clients/go v(\S+)",
    "deploy/helm/pumice/Chart.yaml": r"(?m)^(?:version|appVersion): (.*)$",
    "deploy/kustomize/sidecar/kustomization.yaml": r"newTag: (.*)",
    "deploy/kustomize/kube-scheduler/kustomization.yaml": r"newTag: (.*)",
    "deploy/kustomize/standalone/objects.yaml": r"image: .*:(.*)",
    "deploy/README.md": r"\?ref=v(\S*?)\]",
}


def found() -> dict[str, set[str]]:
    """Versions that each file names."""
    return {name: set(re.findall(expression, (ROOT / name).read_text())) for name, expression in PLACES.items()}


def main(wanted: str) -> int:
    """Prints what differs; the exit code is 1 then."""
    versions = found()
    (version,) = versions["Cargo.toml"]
    wrong = {name: named for name, named in versions.items() if named != {version}}
    for name, named in wrong.items():
        print(f"{name} names {', '.join(sorted(named)) or 'no version'}, Cargo.toml names {version}", file=sys.stderr)
    if wanted and wanted.removeprefix("v") != version:
        print(f"the release is {wanted}, Cargo.toml names {version}", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
