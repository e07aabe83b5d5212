"""Plain manifests: they render, a real API server accepts them, and they say what the chart says."""

import os
from pathlib import Path

import yaml

from cluster import ControlPlane
from test_chart import install_monitoring_kinds
from tools import DEPLOY, PLAIN, ROOT, Object, find, kustomize, render_chart, run

KUSTOMIZE = DEPLOY / "kustomize"


def test_the_api_server_accepts_the_standalone_manifests(cluster: ControlPlane) -> None:
    cluster.namespace("pumice")
    objects = kustomize(KUSTOMIZE / "standalone")
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert {item["kind"] for item in objects} >= {"Deployment", "Service", "NetworkPolicy", "PersistentVolumeClaim"}


def test_the_insecure_component_is_what_the_chart_says(cluster: ControlPlane) -> None:
    install_monitoring_kinds(cluster)
    cluster.namespace("pumice")
    objects = kustomize(DEPLOY / "check" / "schedulers" / "insecure")
    for item in objects:
        cluster.apply(item, dry_run=True)
    policy = ["--set-file", f"policy.document={KUSTOMIZE / 'standalone' / 'policy.yaml'}"]
    chart = render_chart(*policy, "--set", "serviceMonitor.enabled=true", connect=PLAIN)
    (own,), (other,) = (
        find(found, "Deployment")["spec"]["template"]["spec"]["containers"] for found in (objects, chart)
    )
    assert own == other
    names = [
        [volume["name"] for volume in find(found, "Deployment")["spec"]["template"]["spec"]["volumes"]]
        for found in (objects, chart)
    ]
    assert names[0] == names[1]
    for kind, name in (("Service", "pumice"), ("Service", "pumice-sources"), ("ServiceMonitor", "pumice")):
        wanted = find(chart, kind, name)["spec"]
        assert find(objects, kind, name)["spec"] == wanted, name


def test_the_api_server_accepts_the_monitoring_component(cluster: ControlPlane) -> None:
    install_monitoring_kinds(cluster)
    cluster.namespace("pumice")
    objects = kustomize(DEPLOY / "check" / "schedulers" / "monitored")
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert {item["kind"] for item in objects} >= {"ServiceMonitor", "PrometheusRule"}


def granted(objects: list[Object], *kinds: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of each right that roles of these kinds grant."""
    rules = [rule for item in objects if item["kind"] in kinds for rule in item["rules"]]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_live_component_reads_and_its_reasons_write_little(cluster: ControlPlane) -> None:
    cluster.namespace("pumice")
    objects = kustomize(DEPLOY / "check" / "schedulers" / "live")
    for item in objects:
        cluster.apply(item, dry_run=True)
    own = {item["metadata"]["name"]: [item] for item in objects if item["kind"] == "ClusterRole"}
    rights = granted(own["pumice-live"], "ClusterRole")
    assert {verb for _, _, verb in rights} == {"list", "watch"}
    read = {(group, resource) for group, resource, _ in rights}
    assert read >= {("", "resourcequotas"), ("policy", "poddisruptionbudgets")}
    assert granted(own["pumice-reasons"], "ClusterRole") == {
        ("", "pods/status", "patch"),
        ("", "events", "create"),
        ("", "events", "patch"),
        ("scheduling.volcano.sh", "podgroups", "get"),
        ("scheduling.volcano.sh", "podgroups/status", "patch"),
    }
    binds = granted(own["pumice-bind"], "ClusterRole")
    assert binds == {("", "pods/binding", "create")}
    verified = {("authentication.k8s.io", "tokenreviews", "create")}
    assert granted(own["pumice-tokens"], "ClusterRole") == verified
    pod = find(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    assert {"name": "PUMICE_STATE", "value": "kubernetes"} in pod["containers"][0]["env"]
    account = find(objects, "ServiceAccount")["metadata"]
    for binding in (item for item in objects if item["kind"] in ("ClusterRoleBinding", "RoleBinding")):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    # The chart grants the same, in namespaces or at once.
    assert granted(render_chart("--set", "cluster.watch=true"), "ClusterRole") == rights
    apart = ["--set", "cluster.watch=true", "--set", "cluster.namespaces={team-a,team-b}"]
    assert granted(render_chart(*apart), "ClusterRole", "Role") == rights
    # Its reasons likewise.
    reasons = granted(objects, "ClusterRole", "Role") - rights - binds - verified
    for more in (["cluster.explainPodsOf={volcano}"], ["settings.explain_pods_of={volcano}"]):
        explains = render_chart("--set", "cluster.watch=true", "--set", *more)
        assert granted(explains, "ClusterRole", "Role") - rights == reasons, more
        for item in explains:
            cluster.apply(item, dry_run=True)
    # And its binds.
    for more in (["cluster.bindPods=true"], ["settings.extender_bind=true"]):
        bound = render_chart("--set", "cluster.watch=true", "--set", *more)
        assert granted(bound, "ClusterRole") - rights == binds, more
    assert granted(render_chart("--set", "cluster.verifyTokens=true"), "ClusterRole") == verified


def test_the_store_component_is_what_the_chart_says(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.namespace("pumice")
    objects = kustomize(DEPLOY / "check" / "schedulers" / "store")
    for item in objects:
        cluster.apply(item, dry_run=True)
    values = ["--set", "replicas=3", "--set", "store.kind=kubernetes", "--set", "cluster.watch=true"]
    chart = render_chart(*values)
    assert granted(objects, "Role") == granted(chart, "Role")
    own, other = (find(objects, "Deployment")["spec"] for objects in (objects, chart))
    assert (own["replicas"], own["strategy"]) == (other["replicas"], other["strategy"])
    assert find(objects, "PodDisruptionBudget")["spec"] == find(chart, "PodDisruptionBudget")["spec"]
    pod, rendered = own["template"]["spec"], other["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"] if volume["name"] == "data"] == []
    assert [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "data"] == []
    env = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}
    # The server takes the settings.
    settings = next(item for item in objects if item["metadata"]["name"].startswith("pumice-settings"))
    (tmp_path / "pumice.yaml").write_text(settings["data"]["pumice.yaml"])
    args = pod["containers"][0]["args"]
    plain = [f"{name}={value}" for name, value in env.items() if value and "$" not in value]
    command = ["env", *plain, os.environ["PUMICE_BIN"], "serve", "--config", tmp_path / "pumice.yaml", *args[3:]]
    shown = yaml.safe_load(run(*command, "--print-config").stdout)
    assert (shown["store"], shown["data_dir"], shown["state"]) == ("kubernetes", "", "kubernetes")
    advertised = {item["name"]: item.get("value") for item in rendered["containers"][0]["env"]}
    assert advertised.items() <= env.items()
    assert "PersistentVolumeClaim" not in {item["kind"] for item in objects}
    egress = find(objects, "NetworkPolicy")["spec"]["egress"]
    assert egress == find(chart, "NetworkPolicy")["spec"]["egress"]


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
