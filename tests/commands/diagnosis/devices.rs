//! Commands name the devices that tasks have, ask for and would get.

use std::path::PathBuf;

use pumice::server::pb;
use serde_json::{Value, json};

use super::{ends, json as json_of};
use crate::support::EmbeddedServer;

const POLICY: &str = include_str!("../../../examples/fgd.yaml");

/// Two nodes with four GPUs each by their slices; `a/trained` has a whole one by its claim, `a/half` a share that nobody
/// assigned, and `a/asker` waits for a share.
fn cluster() -> String {
    let node = |name: &str, cpu: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "512Gi", "pods": "110"}}})
    };
    let slice = |node: &str| {
        let gpu = |number: u32| {
            json!({"name": format!("gpu-{number}"), "attributes": {"productName": {"string": "G2"}},
                "capacity": {"memory": {"value": "100Gi"}}})
        };
        let gpus: Vec<Value> = (0..4).map(gpu).collect();
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node, "generation": 1}, "devices": gpus}})
    };
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one", "namespace": "a"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "busy", "device": "gpu-3"}]}}}});
    let items = json!([
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}},
        node("busy", "16"),
        node("idle", "64"),
        slice("busy"),
        slice("idle"),
        claim,
        template("half", &json!({"capacity": {"requests": {"memory": "50Gi"}}})),
        template("less", &json!({"capacity": {"requests": {"memory": "47Gi"}}})),
        pod("trained", "busy", &json!({"resourceClaimName": "one"})),
        pod("half", "busy", &json!({"resourceClaimTemplateName": "half"})),
        pod("asker", "", &json!({"resourceClaimTemplateName": "less"})),
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Template of a claim of one request.
fn template(name: &str, request: &Value) -> Value {
    let mut request = request.clone();
    request["deviceClassName"] = "gpu.nvidia.com".into();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name, "namespace": "a"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}}})
}

/// Pod with one claim, which runs on a node or waits.
fn pod(name: &str, node: &str, claim: &Value) -> Value {
    let mut claim = claim.clone();
    claim["name"] = "gpu".into();
    let phase = if node.is_empty() { "Pending" } else { "Running" };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "resourceClaims": [claim],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": phase}})
}

fn write(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pumice-devices-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn explain_place_and_capacity_name_devices() {
    let server = EmbeddedServer::start();
    let reload = pb::ReloadPolicyRequest {
        document: POLICY.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(reload).unwrap();
    let file = write("cluster.json", &cluster());
    let said = ends(Some(&server), &["state", "load", file.to_str().unwrap()], 0);
    assert!(!said.contains("resource claims"), "{said}");

    let said = ends(Some(&server), &["explain", "task", "a/trained"], 0);
    assert!(said.contains("a/trained has device 3 of busy"), "{said}");
    let report = json_of(&server, &["explain", "task", "a/trained"]);
    assert_eq!(
        report["subject"]["devices"],
        json!([{"task": "a/trained", "node": "busy", "devices": [3]}])
    );

    let said = ends(Some(&server), &["explain", "task", "a/asker"], 0);
    assert!(said.contains("1 device with 48,128 MiB"), "{said}");
    assert!(said.contains("now it would get device 0 of busy"), "{said}");
    let report = json_of(&server, &["explain", "task", "a/asker"]);
    let class = &report["taskClasses"][0];
    assert_eq!(
        (&class["devices"]["memoryMib"], &class["wouldGet"]["devices"]),
        (&json!(48_128), &json!([0]))
    );

    let mut worker = pod("w", "", &json!({"resourceClaimTemplateName": "pair"}));
    worker["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": "g"});
    let gang = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "a"},
            "spec": {"minMember": 1}},
        template("pair", &json!({"count": 2})),
        worker]});
    let gang = write("gang.json", &gang.to_string());
    let said = ends(Some(&server), &["place", "-f", gang.to_str().unwrap()], 0);
    assert!(said.contains("DEVICES") && said.contains("1,2"), "{said}");

    for path in [file, gang] {
        std::fs::remove_file(path).unwrap();
    }
}
