"""Plain manifests from the Helm chart: run this file to write them again."""

from pathlib import Path

import yaml

from tools import DEPLOY, PLAIN, Object, documents, find, render_chart

STANDALONE = DEPLOY / "kustomize" / "standalone"
INSECURE = DEPLOY / "kustomize" / "insecure"
MONITORING = DEPLOY / "kustomize" / "monitoring"
# Nobody makes a certificate for plain manifests: its Secret has to be there.
SECRET = ("--set", "tls.secretName=pumice-tls")
# Labels and annotations that speak of Helm, or of what kustomize does itself.
OF_HELM = {"helm.sh/chart", "app.kubernetes.io/managed-by", "helm.sh/resource-policy", "checksum/settings"}


def without_helm(value: object) -> object:
    """An object without what only Helm reads, and without its namespace, which the kustomization names."""
    if isinstance(value, dict):
        remaining = {
            name: without_helm(inner) for name, inner in value.items() if name not in OF_HELM and name != "namespace"
        }
        return {name: inner for name, inner in remaining.items() if inner != {} or name not in ("annotations",)}
    if isinstance(value, list):
        return [without_helm(inner) for inner in value]
    return value


def written(objects: list[Object]) -> str:
    """Objects as a stream."""
    begin = "# Rendered from the Helm chart by deploy/check/render.py.\n"
    return begin + yaml.safe_dump_all([without_helm(item) for item in objects], sort_keys=False, width=140)


def rendered() -> dict[Path, str]:
    """Content of each file that follows the chart."""
    policy = ["--set-file", f"policy.document={STANDALONE / 'policy.yaml'}"]
    objects = render_chart(*policy, connect=SECRET)
    monitoring = ["--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true"]
    every = render_chart(*monitoring, connect=SECRET)
    settings = find(objects, "ConfigMap", "pumice-settings")["data"]
    plain = find(render_chart(*policy, connect=PLAIN), "ConfigMap", "pumice-settings")["data"]
    return {
        STANDALONE / "objects.yaml": written([item for item in objects if item["kind"] != "ConfigMap"]),
        STANDALONE / "pumice.yaml": settings["pumice.yaml"],
        STANDALONE / "identities.yaml": settings["identities.yaml"],
        INSECURE / "pumice.yaml": plain["pumice.yaml"],
        MONITORING / "objects.yaml": written([item for item in every if item["apiVersion"].startswith("monitoring.")]),
    }


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text)
        documents(text)
