"""Pods as the API server accepted them, run here: users, read-only root, probes, policy mounts, durable state."""

import base64
import os
from pathlib import Path

import pytest

from cluster import ControlPlane
from conftest import RunPod
from image import BuiltImage
from kubelet import PodRun, start_server
from tools import DEPLOY, EXAMPLE_POLICY, PLAIN, ROOT, Object, containers, find, kustomize, render_chart, run, until

PACK = ROOT / "examples" / "pack.yaml"


def install(cluster: ControlPlane, objects: list[Object], namespace: str) -> Object:
    """Applies objects; the one Deployment, as the API server has it."""
    cluster.namespace(namespace)
    for item in objects:
        if item["kind"] != "CustomResourceDefinition":
            cluster.apply(
                {**item, "metadata": {**item["metadata"], "namespace": namespace}}
                if "namespace" in item["metadata"]
                else item
            )
    name = find(objects, "Deployment")["metadata"]["name"]
    return cluster.get("apps/v1", "Deployment", name, namespace)


def pumice(pod: PodRun, *arguments: str) -> str:
    """Output of the command line, in the pod's network."""
    done = pod.inside(os.environ["PUMICE_BIN"], *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_chart_serves_follows_its_policy_and_keeps_what_it_promised(
    cluster: ControlPlane, run_pod: RunPod, server_image: BuiltImage
) -> None:
    policy = ["--set-file", f"policy.document={EXAMPLE_POLICY}"]
    deployment = install(cluster, render_chart(*policy, connect=PLAIN), "pumice")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = containers(deployment)
    pod = run_pod("pumice", spec)
    start_server(pod, container, server_image)
    assert "file:/etc/pumice/policy/policy.yaml" in pumice(pod, "policy", "history")

    # The store is private, although the volume belongs to a group.
    data = pod.volumes["data"] / "data"
    assert data.stat().st_mode & 0o777 == 0o700
    assert "other users may enter" not in pod.log("pumice")

    # A change of the ConfigMap reaches the server by the mount, without a restart.
    before = pumice(pod, "policy", "get")
    objects = render_chart("--set-file", f"policy.document={PACK}")
    cluster.apply(find(objects, "ConfigMap", "pumice-policy"))
    pod.sync_config_maps()
    until("the new policy is in force", lambda: pumice(pod, "policy", "get") != before)
    assert pumice(pod, "policy", "get").rstrip() == PACK.read_text().rstrip()

    # A bad document changes nothing, and the server stays ready.
    bad = find(objects, "ConfigMap", "pumice-policy")
    cluster.apply({**bad, "data": {"policy.yaml": "tiers: 7\n"}})
    pod.sync_config_maps()
    until("the refusal is reported", lambda: 'pumice_policy_rejected{policy="default"} 1' in metrics(pod))
    assert pumice(pod, "policy", "get").rstrip() == PACK.read_text().rstrip()
    assert pod.probe(container, container["readinessProbe"])
    cluster.apply(find(objects, "ConfigMap", "pumice-policy"))

    # A pushed policy outlives the pod, as the volume does, and the next mount leaves the store alone.
    (pod.folder / "pushed.yaml").write_text((ROOT / "examples" / "spread.yaml").read_text())
    pumice(pod, "policy", "push", str(pod.folder / "pushed.yaml"), "--name", "other")
    assert pod.stop("pumice") < spec["terminationGracePeriodSeconds"]
    pod.close()
    pod = run_pod("pumice", spec)
    start_server(pod, container, server_image)
    assert "other" in pumice(pod, "state", "show")
    assert data.stat().st_mode & 0o777 == 0o700


def test_a_self_signed_server_knows_its_callers(
    cluster: ControlPlane, run_pod: RunPod, server_image: BuiltImage, tmp_path: Path
) -> None:
    """TLS, probes over it, a role by the certificate of a client, and none without one from elsewhere."""
    known = 'access.identities=[{"name": "ops", "certificates": ["ops.example"], "roles": ["read", "admin"]}]'
    objects = render_chart("--set", "tls.clientAuth=optional", "--set-json", known)
    deployment = install(cluster, objects, "closed")
    (container,) = containers(deployment)
    pod = run_pod("closed", deployment["spec"]["template"]["spec"])
    start_server(pod, container, server_image)
    for name, data in find(objects, "Secret", "pumice-ca")["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(data))
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=ops", "-addext", "subjectAltName=DNS:ops.example", "-addext", "extendedKeyUsage=clientAuth",
        "-addext", "basicConstraints=critical,CA:false", "-CA", tmp_path / "tls.crt", "-CAkey", tmp_path / "tls.key",
        "-keyout", tmp_path / "ops.key", "-out", tmp_path / "ops.crt",
    )  # fmt: skip

    def calls(*arguments: str | Path, server: str = "https://localhost:7461") -> str:
        trust = ["--server", server, "--ca", str(tmp_path / "ca.crt"), "--server-name", "pumice.pumice"]
        done = pod.inside(os.environ["PUMICE_BIN"], *arguments, *trust)
        return done.stdout + done.stderr

    certificate = ("--certificate", tmp_path / "ops.crt", "--key", tmp_path / "ops.key")
    assert "policies: default" in calls("state", "show")
    assert "ROLE_MISSING" in calls("policy", "push", PACK)
    assert "version 2" in calls("policy", "push", PACK, *certificate)
    # A caller from elsewhere: the pod's network has no other machine, so it calls from an address that is not loopback.
    pod.inside("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
    assert "IDENTITY_MISSING" in calls("state", "show", server="https://192.0.2.1:7461")
    assert "policies: default" in calls("state", "show", *certificate, server="https://192.0.2.1:7461")
    plain = pod.inside(os.environ["PUMICE_BIN"], "state", "show", "--server", "http://localhost:7461")
    assert plain.returncode != 0


def test_the_image_gives_a_first_decision(run_pod: RunPod, server_image: BuiltImage) -> None:
    """`docker run IMAGE demo` of the README: nobody's user, a root that cannot be written, no network but its own."""
    user = int(server_image.user.split(":")[0])
    security = {"runAsUser": user, "runAsGroup": user, "readOnlyRootFilesystem": True}
    container: Object = {"name": "demo", "args": ["demo", "--color", "never"], "securityContext": security}
    pod = run_pod("default", {"containers": [container]})
    pod.start(container, server_image.root, server_image.entrypoint)
    assert pod.running.pop("demo").wait(60) == 0, pod.log("demo")
    assert " passed, 0 failed" in pod.log("demo")


def metrics(pod: PodRun) -> str:
    """The page of metrics."""
    done = pod.inside("curl", "--silent", "--fail", "http://127.0.0.1:7462/metrics")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_that_waits_for_a_source_is_alive_and_not_ready(
    cluster: ControlPlane, run_pod: RunPod, server_image: BuiltImage
) -> None:
    options = ["--set", "settings.expect_source[0]=kube", "--set", "persistence.enabled=false"]
    objects = render_chart(*options, connect=PLAIN)
    deployment = install(cluster, objects, "waiting")
    (container,) = containers(deployment)
    pod = run_pod("waiting", deployment["spec"]["template"]["spec"])
    pod.start(container, server_image.root, server_image.entrypoint)
    until("the server is alive", lambda: pod.probe(container, container["livenessProbe"]))
    assert not pod.probe(container, container["readinessProbe"])
    # Sources reach it all the same: their service publishes a pod that is not ready.
    sources = cluster.get("v1", "Service", "pumice-sources", "waiting")
    assert sources["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in cluster.get("v1", "Service", "pumice", "waiting")["spec"]
    pumice(pod, "state", "load", str(ROOT / "tests" / "data" / "dump.yaml"), "--source", "kube")
    until("the server is ready", lambda: pod.probe(container, container["readinessProbe"]))


@pytest.mark.parametrize(
    ("overlay", "name", "user"),
    [
        ("volcano", "volcano-scheduler", 1000),
        ("koordinator", "koord-scheduler", 1000),
        ("kube-scheduler", "pumice-kube-scheduler", None),
    ],
)
def test_a_sidecar_serves_its_scheduler_on_the_socket(
    cluster: ControlPlane,
    run_pod: RunPod,
    server_image: BuiltImage,
    tmp_path: Path,
    overlay: str,
    name: str,
    user: int | None,
) -> None:
    folder = DEPLOY / "kustomize" / overlay
    if user:
        folder = DEPLOY / "check" / "schedulers" / overlay
    objects = kustomize(folder)
    namespace = find(objects, "Deployment", name)["metadata"]["namespace"]
    cluster.namespace(namespace)
    for item in objects:
        cluster.apply(item)
    deployment = cluster.get("apps/v1", "Deployment", name, namespace)
    spec = deployment["spec"]["template"]["spec"]
    server, scheduler = spec["initContainers"][0], spec["containers"][0]
    assert (server["name"], server["restartPolicy"]) == ("pumice", "Always")

    pod = run_pod(namespace, spec)
    start_server(pod, server, server_image)
    # The scheduler's container, with the command line in place of the scheduler: another user, the same socket.
    target = [variable["value"] for variable in scheduler.get("env", []) if variable["name"] == "PUMICE_TARGET"]
    socket = "/run/pumice/pumice.sock"
    assert target in ([], [f"unix:{socket}"])
    asks = {**scheduler, "args": ["state", "show", "--server", f"unix:{socket}"], "env": []}
    pod.start(asks, server_image.root, server_image.entrypoint, user)
    program = pod.running.pop(scheduler["name"])
    assert program.wait(30) == 0, pod.log(scheduler["name"])
    assert "default" in pod.log(scheduler["name"])

    before = pumice(pod, "policy", "get")
    policy = cluster.get("v1", "ConfigMap", "pumice-policy", namespace)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "pumice-policy", "namespace": namespace},
            "data": {**policy["data"], "policy.yaml": PACK.read_text()},
        }
    )
    pod.sync_config_maps()
    until("the new policy is in force", lambda: pumice(pod, "policy", "get") != before)
