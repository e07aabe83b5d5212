"""The Helm chart: what it renders, what it refuses, and what a real API server says of it."""

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from cluster import ControlPlane
from tools import (
    CHART,
    DEPLOY,
    EXAMPLE_POLICY,
    KUBE_VERSION,
    PLAIN,
    ROOT,
    SELF_SIGNED,
    Object,
    containers,
    documents,
    find,
    render_chart,
    run,
    until,
)

# Values that switch everything on.
EVERYTHING = [
    "--set-file", f"policy.document={EXAMPLE_POLICY}",
    "--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true", "--set", "dashboard.enabled=true",
    "--set", "image.digest=sha256:" + "0" * 64, "--set", "imagePullSecrets[0].name=registry",
    "--set", "persistence.storageClassName=fast", "--set", "persistence.annotations.note=kept",
    "--set", "serviceAccount.annotations.note=none", "--set", "service.annotations.note=both",
    "--set", "commonLabels.team=batch", "--set", "podLabels.tier=one", "--set", "podAnnotations.note=pod",
    "--set", "nodeSelector.disk=fast", "--set", "tolerations[0].operator=Exists",
    "--set", "priorityClassName=system-cluster-critical",
    "--set", "settings.expect_source[0]=kube", "--set", "settings.otlp_endpoint=http://collector:4317",
    "--set", "settings.session_bytes=512Mi", "--set", "settings.source_stale_ms=30s",
    "--set", "networkPolicy.egress[0].to[0].namespaceSelector.matchLabels.name=tracing",
]  # fmt: skip
FEWEST = [
    "--set", "persistence.enabled=false", "--set", "networkPolicy.enabled=false",
    "--set", "serviceAccount.create=false", "--set", "tls.selfSigned=false", *PLAIN,
]  # fmt: skip
# Values of several servers.
SHARED = ["--set", "replicas=3", "--set", "store.kind=kubernetes", "--set", "store.namespace=pumice-log"]


def values() -> Object:
    loaded: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def settings_of(objects: list[Object]) -> Object:
    config = find(objects, "ConfigMap", ".*-settings")
    loaded: Object = yaml.safe_load(config["data"]["pumice.yaml"])
    return loaded


def test_lint_finds_nothing() -> None:
    for options in ([], EVERYTHING, FEWEST, SHARED):
        run(os.environ["HELM"], "lint", "--strict", CHART, *KUBE_VERSION, *SELF_SIGNED, *options)


def test_every_value_is_in_the_schema_and_in_the_table() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = ["| Value | Default | Meaning |", "|---|---|---|"]

    def walk(where: str, value: object, described: Object) -> None:
        assert "description" in described or not where, f"{where} has no description"
        if where not in ("settings", "access") and isinstance(value, dict) and "properties" in described:
            assert described.get("additionalProperties") is False, where
            assert set(value) | {"global", "claims"} >= set(described["properties"]), where
            for name, inner in value.items():
                walk(f"{where}.{name}".lstrip("."), inner, described["properties"][name])
        else:
            rows.append(f"| `{where}` | `{json.dumps(value)}` | {described['description']} |")

    walk("", values(), schema)
    assert set(values()["settings"]) <= set(schema["properties"]["settings"]["properties"])
    identities = json.loads(run(os.environ["PUMICE_BIN"], "schema", "identities").stdout)
    assert schema["properties"]["access"]["properties"] == identities["properties"]
    page = CHART / "README.md"
    before, rest = page.read_text().split("<!-- values: generated -->\n")
    shown, after = rest.split("<!-- values: end -->")
    table = "\n".join(rows) + "\n"
    if "PUMICE_BLESS" in os.environ:
        page.write_text(f"{before}<!-- values: generated -->\n{table}<!-- values: end -->{after}")
        return
    assert shown == table, "PUMICE_BLESS=1 rewrites the table of values"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("settings.call=7", "call"),
        ("settings.calls=0", "calls"),
        ("settings.data_dir=/elsewhere", "data_dir"),
        ("settings.log_format=xml", "log_format"),
        ("replicas=2", "set store.kind to kubernetes, or settings.store to etcd"),
        ("replicas=0", "replicas"),
        ("store.kind=redis", "kind"),
        ("store.namespace=A", "namespace"),
        ("settings.store=kubernetes", "set store.kind"),
        ("store.kind=kubernetes,settings.store=etcd", "name two stores"),
        ("image.digest=latest", "digest"),
        ("persistence.size=large", "size"),
        ("persistence.accessModes[0]=ReadOnlyMany", "accessModes"),
        ("terminationGracePeriodSeconds=20", "the kubelet would kill the server while it drains"),
        ("policy.existingConfigMap=mine,policy.document=x", "name two policies"),
        ("cluster.bindPods=true", "set cluster.watch"),
        ("cluster.explainPodsOf={volcano}", "set cluster.watch"),
        # Nothing that opens the server is a default.
        ("tls.selfSigned=false", "nothing says how callers connect: set tls.selfSigned=true"),
        ("tls.selfSigned=false,settings.insecure=http", "settings.insecure=true, by which whoever can connect has all"),
        ("tls.selfSigned=false,settings.insecure=true,tls.clientAuth=required", "takes TLS"),
        ("tls.secretName=mine", "set one of them"),
        ("tls.certManager.enabled=true", "set one of them"),
        ("access=null", "everybody who can connect would have all roles: list callers in access.identities"),
        ("access.local.roles={root}", "roles"),
        ("access.identities[0].name=a,access.identities[0].roles={read}", "service_accounts"),
        (
            "access.identities[0].name=a,access.identities[0].roles={read},access.identities[0].service_accounts={b/c}",
            "set cluster.verifyTokens",
        ),
    ],
)
def test_wrong_values_are_refused(option: str, message: str) -> None:
    options = [*KUBE_VERSION, *SELF_SIGNED, "--set", option]
    refused = run(os.environ["HELM"], "template", "pumice", CHART, *options, check=False)
    assert refused.returncode != 0
    assert message in refused.stderr, refused.stderr


def test_the_settings_file_is_one_that_the_server_reads(tmp_path: Path) -> None:
    for options in ([], EVERYTHING, FEWEST, SHARED):
        config = settings_of(render_chart(*options))
        (tmp_path / "pumice.yaml").write_text(yaml.safe_dump(config))
        shown = run(os.environ["PUMICE_BIN"], "serve", "--config", tmp_path / "pumice.yaml", "--print-config").stdout
        read = yaml.safe_load(shown)
        for name, value in config.items():
            units = {"512Mi": 512 << 20, "30s": 30_000}
            assert read[name] == units.get(str(value), value), name


def test_whoever_can_connect_has_no_role_unless_the_values_say_so() -> None:
    accounts = ["--set", "cluster.verifyTokens=true", "--set-json"]
    scheduler = {"name": "volcano", "service_accounts": ["volcano-system/volcano-scheduler"], "roles": ["decide"]}
    accounts.append(f"access.identities={json.dumps([scheduler])}")
    for options, identities, review in (
        ([], [], {}),
        (accounts, [scheduler], {"token_review": {"audiences": ["pumice"]}}),
    ):
        objects = render_chart(*options)
        data = find(objects, "ConfigMap", "pumice-settings")["data"]
        known = yaml.safe_load(data["identities.yaml"])
        assert known == {"identities": identities, "local": {"roles": ["read"]}, **review}
        settings = settings_of(objects)
        assert settings["identities_file"] == "/etc/pumice/settings/identities.yaml"
        assert "insecure" not in settings
        assert find(objects, "NetworkPolicy")["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]
    own = settings_of(render_chart("--set", "settings.identities_file=/etc/pumice/tls/identities.yaml"))
    assert own["identities_file"] == "/etc/pumice/tls/identities.yaml"
    plain = settings_of(render_chart(connect=PLAIN))
    assert plain["insecure"] is True
    assert not {"identities_file", "tls_certificate"} & set(plain)


def test_cert_manager_takes_an_issuer_or_makes_an_authority() -> None:
    objects = render_chart(connect=("--set", "tls.certManager.enabled=true"))
    ask, authority = find(objects, "Certificate", "pumice")["spec"], find(objects, "Certificate", "pumice-ca")["spec"]
    assert find(objects, "Issuer", ask["issuerRef"]["name"])["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert find(objects, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    assert authority["isCA"] is True
    assert {"pumice.pumice", "pumice-sources.pumice.svc", "pumice-replicas"} <= set(ask["dnsNames"])
    volumes = find(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert ask["secretName"] in [volume.get("secret", {}).get("secretName") for volume in volumes]
    other = ("--set", "tls.certManager.enabled=true,tls.certManager.issuerRef.name=ours")
    objects = render_chart("--set", "tls.certManager.dnsNames={pumice.example}", connect=other)
    ask = find(objects, "Certificate")["spec"]
    assert ask["issuerRef"] == {"name": "ours"}
    assert ask["dnsNames"][-1] == "pumice.example"
    assert "Issuer" not in {item["kind"] for item in objects}


def test_the_pod_asks_for_no_rights() -> None:
    for options in ([], EVERYTHING, FEWEST):
        objects = render_chart(*options)
        deployment = find(objects, "Deployment")
        assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
        pod = deployment["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in containers(deployment):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "subPath" not in json.dumps(container["volumeMounts"])
        kinds = {item["kind"] for item in objects}
        assert not kinds & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def test_a_watching_server_has_a_token_and_reads_only(cluster: ControlPlane) -> None:
    options = ["--set", "cluster.watch=true", "--set", "cluster.namespaces={team-a,team-b}"]
    objects = render_chart(*options)
    for namespace in ("pumice", "team-a", "team-b"):
        cluster.namespace(namespace)
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert find(objects, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    settings = settings_of(objects)
    assert (settings["state"], settings["kubernetes_namespace"]) == ("kubernetes", ["team-a", "team-b"])
    roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    assert sorted(item["metadata"].get("namespace", "") for item in roles) == ["", "team-a", "team-b"]
    assert {verb for item in roles for rule in item["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    for role in (item for item in roles if item["kind"] == "Role"):
        read = {(group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]}
        assert read >= {("", "resourcequotas"), ("policy", "poddisruptionbudgets")}
    egress = find(objects, "NetworkPolicy")["spec"]["egress"]
    assert [port["port"] for rule in egress for port in rule["ports"]] == [443, 6443]


def test_a_server_that_explains_pods_may_write_their_reasons() -> None:
    objects = render_chart("--set", "cluster.watch=true", "--set", "cluster.explainPodsOf={volcano,pumice}")
    assert settings_of(objects)["explain_pods_of"] == ["volcano", "pumice"]
    account = find(objects, "ServiceAccount")["metadata"]
    bindings = [item for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == 3
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    plain = render_chart("--set", "cluster.watch=true")
    assert not [item for item in plain if item["kind"] == "Role"]


def test_a_server_that_binds_pods_may_do_that_and_no_more(cluster: ControlPlane) -> None:
    cluster.namespace("pumice")
    watching = ["--set", "cluster.watch=true"]
    objects = render_chart(*watching, "--set", "cluster.bindPods=true")
    for item in objects:
        cluster.apply(item, dry_run=True)
    settings = settings_of(objects)
    assert (settings["state"], settings["extender_bind"]) == ("kubernetes", True)
    role = next(
        item for item in objects if item["kind"] == "ClusterRole" and item["metadata"]["name"].endswith("-bind")
    )
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]
    account = find(objects, "ServiceAccount")["metadata"]
    bindings = [item for item in objects if item["kind"] == "ClusterRoleBinding"]
    assert len(bindings) == 2
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    plain = render_chart(*watching)
    assert "extender_bind" not in settings_of(plain)
    assert not [item for item in plain if item["metadata"]["name"].endswith("-bind")]


def test_a_server_that_verifies_tokens_has_one_and_asks_only_for_that(cluster: ControlPlane) -> None:
    cluster.namespace("pumice")
    objects = render_chart("--set", "cluster.verifyTokens=true")
    for item in objects:
        cluster.apply(item, dry_run=True)
    assert find(objects, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    (role,) = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    assert role["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    egress = find(objects, "NetworkPolicy")["spec"]["egress"]
    assert [port["port"] for rule in egress for port in rule["ports"]] == [443, 6443]


STORE_RULES = [
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "create", "update", "delete"],
    },
]


def test_servers_that_share_a_store_are_several_and_follow_each_other(cluster: ControlPlane) -> None:
    for name in ("pumice", "pumice-log"):
        cluster.namespace(name)
    members = ["--set", "replicas=3", "--set", "settings.store=etcd", "--set", "settings.etcd_member[0]=http://e:2379"]
    for options in (SHARED, members):
        objects = render_chart(*options)
        for item in objects:
            cluster.apply(item, dry_run=True)
        deployment = find(objects, "Deployment")["spec"]
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        assert (deployment["replicas"], deployment["strategy"]) == (3, rolling)
        (container,) = containers(find(objects, "Deployment"))
        assert {"name": "PUMICE_ADVERTISED_ADDRESS", "value": "$(POD_IP):7461"} in container["env"]
        assert "data_dir" not in settings_of(objects)
        assert not [item for item in objects if item["kind"] == "PersistentVolumeClaim"]
        assert find(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
        assert find(objects, "Service", "pumice-replicas")["spec"]["clusterIP"] == "None"
        watches = options is SHARED
        assert deployment["template"]["spec"]["automountServiceAccountToken"] is watches
        assert bool(find(objects, "NetworkPolicy")["spec"]["egress"]) is watches
        roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
        assert [(role["metadata"]["namespace"], role["rules"]) for role in roles] == (
            [("pumice-log", STORE_RULES)] if watches else []
        )
    settings = settings_of(render_chart(*SHARED))
    names = ("store", "kubernetes_store_namespace", "kubernetes_store_name")
    assert [settings[name] for name in names] == ["kubernetes", "pumice-log", "pumice"]


def test_the_rights_of_the_chart_are_those_that_a_store_needs(cluster: ControlPlane, tmp_path: Path) -> None:
    """A log is made, moved and checked by the account of the chart, and not without its rights."""
    for name in ("pumice", "pumice-log"):
        cluster.namespace(name)
    objects = render_chart("--set", "store.kind=kubernetes", "--set", "store.namespace=pumice-log")
    account = find(objects, "ServiceAccount")["metadata"]
    for kind in ("ServiceAccount", "Role"):
        cluster.apply(find(objects, kind))
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    path = cluster.path("v1", "ServiceAccount", account["name"], account["namespace"])
    token = cluster.call("POST", f"{path}/token", asked)["status"]["token"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(cluster.client_config(token)))
    program, place = os.environ["PUMICE_BIN"], "kubernetes:pumice-log/pumice"

    def store(command: str, *arguments: str | Path, where: str | Path = place) -> str:
        done = run(program, "store", command, where, *arguments, check=False)
        return done.stdout + done.stderr

    export, again = tmp_path / "export.jsonl", tmp_path / "again.jsonl"
    folder = tmp_path / "disk"
    refused = store("check", "--kubeconfig", kubeconfig)
    assert "forbidden" in refused, refused
    assert "let the account get, list" in refused, refused
    cluster.apply(find(objects, "RoleBinding"))
    missing = "there is no store"
    until("the rights count", lambda: missing in store("check", "--kubeconfig", kubeconfig))
    server = subprocess.Popen(
        [program, "serve", "--data-dir", folder, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
    )
    until("the server has made its store", lambda: (folder / "pumice.id").exists())
    server.terminate()
    server.wait(20)
    store("export", "--out", export, where=folder)
    assert "made kubernetes:pumice-log/pumice" in store("import", export, "--kubeconfig", kubeconfig)
    assert "every record is whole" in store("check", "--kubeconfig", kubeconfig)
    store("export", "--out", again, "--kubeconfig", kubeconfig)
    assert export.read_bytes() == again.read_bytes()
    assert "has a store already" in store("import", export, "--kubeconfig", kubeconfig)


def test_a_change_of_settings_restarts_the_pod_and_one_of_the_policy_does_not() -> None:
    def template(*options: str) -> Object:
        spec: Object = find(render_chart(*options), "Deployment")["spec"]["template"]
        return spec

    policy = ["--set-file", f"policy.document={EXAMPLE_POLICY}"]
    other = ["--set-file", f"policy.document={ROOT / 'examples' / 'pack.yaml'}"]
    assert template(*policy) == template(*other)
    assert template(*policy) != template(*policy, "--set", "settings.calls=7")


@pytest.mark.parametrize(
    "text", ["  - indented: first\n- then not\n", "no: newline", "a:\tb  \n", "two: newlines\n\n", ""]
)
def test_a_document_arrives_as_it_is(text: str, tmp_path: Path) -> None:
    """Spaces at the beginning and tabs, too; only of the newlines at its end, some may be gone."""
    (tmp_path / "policy").write_text(text)
    objects = render_chart("--set-file", f"policy.document={tmp_path / 'policy'}", "--set", "policy.key=a.conf")
    found = [item["data"] for item in objects if item["metadata"]["name"] == "pumice-policy"]
    assert [data["a.conf"].rstrip("\n") for data in found] == ([text.rstrip("\n")] if text else [])


def test_a_config_map_that_exists_is_mounted() -> None:
    options = [
        "--set",
        "policy.existingConfigMap=volcano-scheduler-configmap",
        "--set",
        "policy.key=volcano-scheduler.conf",
    ]
    objects = render_chart(*options)
    assert settings_of(objects)["policy_file"] == "/etc/pumice/policy/volcano-scheduler.conf"
    volumes = find(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "policy", "configMap": {"name": "volcano-scheduler-configmap"}} in volumes
    assert [item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"] == ["pumice-settings"]


@pytest.mark.parametrize("options", [[], EVERYTHING, FEWEST])
def test_the_api_server_accepts_every_object(cluster: ControlPlane, options: list[str]) -> None:
    install_monitoring_kinds(cluster)
    cluster.namespace("pumice")
    objects = render_chart(*options)
    for item in objects:
        accepted = cluster.apply(item, dry_run=True)
        assert accepted["metadata"]["name"] == item["metadata"]["name"]
    assert len(objects) >= 4


def test_helm_installs_upgrades_and_uninstalls(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.namespace("helm")

    def helm(*arguments: str | Path, check: bool = True) -> str:
        options = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", "helm"]
        done = run(os.environ["HELM"], *arguments, *options, check=check)
        return done.stdout + done.stderr

    def certificate(name: str, key: str = "tls.crt") -> bytes:
        return base64.b64decode(cluster.get("v1", "Secret", f"prod-pumice-{name}", "helm")["data"][key])

    assert "nothing says how callers connect" in helm("install", "prod", CHART, check=False)
    notes = helm("install", "prod", CHART, *SELF_SIGNED)
    assert "prod-pumice.helm:7461" in notes
    assert "built-in policy" in notes
    assert "No scheduler has a role yet" in notes
    assert cluster.get("apps/v1", "Deployment", "prod-pumice", "helm")["spec"]["strategy"] == {"type": "Recreate"}
    authority, first = certificate("ca"), certificate("tls")
    helm("upgrade", "prod", CHART, *SELF_SIGNED, "--set-file", f"policy.document={EXAMPLE_POLICY}")
    policy = cluster.get("v1", "ConfigMap", "prod-pumice-policy", "helm")["data"]["policy.yaml"]
    assert policy.rstrip() == EXAMPLE_POLICY.read_text().rstrip()
    # Clients go on trusting the authority, by which the new certificate is good for the names of the services.
    assert (certificate("ca"), certificate("tls", "ca.crt")) == (authority, authority)
    assert certificate("tls") != first
    for file, content in (("ca.crt", authority), ("first.crt", first), ("tls.crt", certificate("tls"))):
        (tmp_path / file).write_bytes(content)
    for file in ("first.crt", "tls.crt"):
        names = ["-verify_hostname", "prod-pumice-sources.helm.svc", "-purpose", "sslserver"]
        run("openssl", "verify", "-CAfile", tmp_path / "ca.crt", *names, tmp_path / file)
    helm("rollback", "prod", "1")
    assert "prod-pumice-policy" not in json.dumps(cluster.get("apps/v1", "Deployment", "prod-pumice", "helm"))
    helm("uninstall", "prod")
    claim = cluster.get("v1", "PersistentVolumeClaim", "prod-pumice", "helm")
    assert "deletionTimestamp" not in claim["metadata"], "promised quota outlives the release"
    assert "whoever can connect has all roles" in helm("install", "open", CHART, *PLAIN)
    helm("uninstall", "open")


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    """`deploy/kustomize/render.py` writes them again."""
    import render

    for path, text in render.rendered().items():
        assert path.read_text() == text, f"{path} is not current: run deploy/check/render.py"


def install_monitoring_kinds(cluster: ControlPlane) -> None:
    """Kinds of the Prometheus operator, as far as the API server has to know them."""
    for item in documents((DEPLOY / "check" / "monitoring_kinds.yaml").read_text()):
        cluster.apply(item)
    for kind in ("ServiceMonitor", "PrometheusRule"):
        until(kind, lambda kind=kind: cluster.path("monitoring.coreos.com/v1", kind, "x"))  # type: ignore[misc]
