"""Plain manifests: they render, a real API server accepts them, and they say what the chart says."""

import yaml

from cluster import ControlPlane
from test_chart import install_monitoring_kinds
from tools import DEPLOY, ROOT, find, kustomize, render_chart

KUSTOMIZE = DEPLOY / "kustomize"


def test_the_api_server_accepts_the_standalone_manifests(cluster: ControlPlane) -> None:
    cluster.namespace("pumice")
    objects = kustomize(KUSTOMIZE / "standalone")
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert {item["kind"] for item in objects} >= {"Deployment", "Service", "NetworkPolicy", "PersistentVolumeClaim"}


def test_the_api_server_accepts_the_monitoring_component(cluster: ControlPlane) -> None:
    install_monitoring_kinds(cluster)
    cluster.namespace("pumice")
    objects = kustomize(DEPLOY / "check" / "schedulers" / "monitored")
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert {item["kind"] for item in objects} >= {"ServiceMonitor", "PrometheusRule"}


def test_policies_begin_as_the_built_in_one() -> None:
    for folder in ("standalone", "sidecar"):
        assert (KUSTOMIZE / folder / "policy.yaml").read_text() == (ROOT / "policies" / "default.yaml").read_text()


def test_the_policy_keeps_its_name_and_settings_do_not() -> None:
    objects = kustomize(KUSTOMIZE / "standalone")
    volumes = find(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    names = {volume["name"]: volume.get("configMap", {}).get("name", "") for volume in volumes}
    assert names["policy"] == "pumice-policy"
    assert names["settings"].startswith("pumice-settings-")


def test_the_sidecar_runs_as_the_chart_does() -> None:
    sidecar = yaml.safe_load((KUSTOMIZE / "sidecar" / "sidecar.yaml").read_text())
    (beside,) = sidecar["spec"]["template"]["spec"]["initContainers"]
    pod = find(render_chart(), "Deployment")["spec"]["template"]["spec"]
    (alone,) = pod["containers"]
    for name in ("args", "resources"):
        assert beside[name] == alone[name], name
    security = {**pod["securityContext"], **alone["securityContext"]}
    for name, value in beside["securityContext"].items():
        assert security[name] == value, name
    for name in ("startupProbe", "livenessProbe"):
        assert {**beside[name], "httpGet": None} == {**alone[name], "httpGet": None}
