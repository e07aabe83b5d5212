//! Devices of slices and claims, as the watch shows them from the first list on.

use pumice::server::pb;
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::{metric_value, until};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/resourceclaimtemplates";
/// Name of the field that a task lists while its claims are not read whole.
const CLAIM_FIELD: &str = "resourceClaims";

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}})
}

/// Slice of a node with this number of GPUs.
fn slice(node: &str, devices: u32) -> Value {
    let gpu = |number: u32| {
        json!({"name": format!("gpu-{number}"), "attributes": {"productName": {"string": "A100"}},
            "capacity": {"memory": {"value": "80Gi"}}})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("slice-{node}")}, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": (0..devices).map(gpu).collect::<Vec<_>>()}})
}

fn requests(count: u32) -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}]}})
}

/// Claim of namespace `a`, with devices of node `n1`.
fn claim(name: &str, count: u32, allocated: &[&str]) -> Value {
    let result = |device: &&str| json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": device});
    let results: Vec<Value> = allocated.iter().map(result).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "a"},
        "spec": requests(count), "status": {"allocation": {"devices": {"results": results}}}})
}

fn template(name: &str, count: u32) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name, "namespace": "a"},
        "spec": {"spec": requests(count)}})
}

/// Pod of namespace `a` with one claim, on node `n1` if it runs.
fn pod(name: &str, claim: &Value, runs: bool) -> Value {
    let (node, phase) = if runs { ("n1", "Running") } else { ("", "Pending") };
    let mut claim = claim.clone();
    claim["name"] = json!("gpu");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "x"}}, "spec": {
        "nodeName": node, "resourceClaims": [claim], "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase}})
}

fn named(claim: &str) -> Value {
    json!({"resourceClaimName": claim})
}

/// Number and memory of the GPUs of a node.
fn devices(watching: &WatchingServer, node: &str) -> Option<(u32, u32)> {
    let own = watching.node(node).devices?;
    assert_eq!(own.model, "A100");
    Some((own.count, own.memory_mib))
}

/// Number of GPUs that a task asks for and those that it has; `None`: its claims are not read whole.
fn asks(watching: &WatchingServer, task: &str) -> Option<(u32, Vec<u32>)> {
    let task: pb::Task = watching.task(task);
    let request = task.constraints.and_then(|own| own.devices);
    assert!(
        !task.unevaluated_fields.iter().any(|field| field == "ownerSelector"),
        "owners are watched"
    );
    let is_whole = !task.unevaluated_fields.iter().any(|field| field == CLAIM_FIELD);
    assert_eq!(request.is_some(), is_whole, "{request:?}");
    request.map(|own| (own.count, own.assigned))
}

fn cluster() -> ClusterApi {
    let api = ClusterApi::start();
    let objects = [
        node("n1"),
        node("n2"),
        slice("n1", 4),
        claim("one", 2, &["gpu-1", "gpu-3"]),
        claim("both", 1, &["gpu-0"]),
        template("three", 3),
        pod("has", &named("one"), true),
        pod("shares-0", &named("both"), true),
        pod("shares-1", &named("both"), true),
        pod("waits", &json!({"resourceClaimTemplateName": "three"}), false),
        pod("early", &named("late"), false),
    ];
    for object in &objects {
        api.put(object);
    }
    api
}

#[test]
fn lists_show_devices_and_claims_at_once() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    shows_the_cluster(&watching, &api);
    // The watch goes on behind the list.
    api.put(&slice("n2", 2));
    until("the new devices are seen", || {
        devices(&watching, "n2") == Some((2, 81_920))
    });
}

/// The server shows what [`cluster`] has, from its first lists.
fn shows_the_cluster(watching: &WatchingServer, api: &ClusterApi) {
    assert_eq!(
        (devices(watching, "n1"), devices(watching, "n2")),
        (Some((4, 81_920)), None)
    );
    assert_eq!(asks(watching, "a/has"), Some((2, vec![1, 3])));
    assert_eq!(asks(watching, "a/waits"), Some((3, vec![])));
    for task in ["a/shares-0", "a/shares-1", "a/early"] {
        assert_eq!(asks(watching, task), None, "{task}");
    }
    assert_eq!(
        api.take_lists()
            .iter()
            .filter(|own| own.contains("fieldSelector"))
            .count(),
        0
    );
}

#[test]
fn changes_of_slices_claims_and_pods_change_the_records_that_they_concern() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    api.take_lists();
    let mut fewer = slice("n1", 4);
    fewer["spec"]["devices"].as_array_mut().unwrap().remove(0);
    api.put(&fewer);
    until("the devices of the node are fewer", || {
        devices(&watching, "n1") == Some((3, 81_920))
    });
    until("the devices have other numbers", || {
        asks(&watching, "a/has") == Some((2, vec![0, 2]))
    });
    let lists = api.take_lists();
    let read_again: Vec<&String> = lists.iter().filter(|own| own.contains("fieldSelector")).collect();
    assert_eq!(read_again.len(), 1, "{lists:?}");
    assert!(
        read_again[0].starts_with("/api/v1/nodes?fieldSelector=metadata.name%3Dn1&"),
        "{lists:?}"
    );
    api.put(&slice("n2", 1));
    until("another node has a device", || {
        devices(&watching, "n2") == Some((1, 81_920))
    });
    api.put(&claim("late", 1, &[]));
    until("the claim of a pod has come", || {
        asks(&watching, "a/early") == Some((1, vec![]))
    });
    api.put(&template("three", 1));
    until("the template is another one", || {
        asks(&watching, "a/waits") == Some((1, vec![]))
    });
    // gpu-0 has gone with the slice's change.
    api.delete(&pod("shares-0", &named("both"), true));
    until("the claim is that of one pod", || {
        asks(&watching, "a/shares-1") == Some((1, vec![]))
    });
    api.put(&pod("shares-2", &named("both"), false));
    until("the claim is shared again", || asks(&watching, "a/shares-1").is_none());
    api.delete(&claim("one", 2, &[]));
    until("a claim that is gone is not read", || {
        asks(&watching, "a/has").is_none()
    });
    api.delete(&slice("n1", 4));
    until("the node has no devices", || devices(&watching, "n1").is_none());
}

#[test]
fn what_is_absent_or_forbidden_is_reported_until_it_can_be_listed() {
    let api = cluster();
    api.refuse(SLICES, 403);
    api.uninstall(CLAIMS);
    api.uninstall(TEMPLATES);
    let watching = WatchingServer::start(&api, &[]);
    let reported = watching.condition();
    for wanted in [
        "resourceslices.resource.k8s.io (forbidden: the test says 403",
        "resourceclaims.resource.k8s.io (not served by the API server)",
        "resourceclaimtemplates.resource.k8s.io (not served by the API server)",
    ] {
        assert!(reported.contains(wanted), "{reported}");
    }
    assert_eq!(devices(&watching, "n1"), None);
    for task in ["a/has", "a/waits"] {
        assert_eq!(asks(&watching, task), None, "{task}");
    }
    api.refuse(SLICES, 200);
    api.install(CLAIMS);
    api.install(TEMPLATES);
    until("the slices are watched", || {
        devices(&watching, "n1") == Some((4, 81_920))
    });
    until("the claims are watched", || {
        asks(&watching, "a/has") == Some((2, vec![1, 3]))
    });
    until("the templates are watched", || {
        asks(&watching, "a/waits") == Some((3, vec![]))
    });
    until("all are watched", || !watching.condition().contains("resource.k8s.io"));
}

#[test]
fn a_slice_that_cannot_be_read_is_counted_and_the_one_before_counts_on() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    let unreadable = || metric_value(watching.server.http, "pumice_cluster_unreadable_objects_total");
    let syncs = || metric_value(watching.server.http, "pumice_cluster_full_syncs_total");
    let mut broken = slice("n1", 2);
    broken["spec"]["devices"][0]["capacity"]["memory"]["value"] = json!("many");
    api.put(&broken);
    until("the slice is counted", || unreadable() == 1.0);
    let mut broken_claim = claim("one", 1, &[]);
    broken_claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(0);
    api.put(&broken_claim);
    until("the claim is counted", || unreadable() == 2.0);
    // A change behind them shows that both have been read.
    api.put(&slice("n2", 1));
    until("another node has a device", || devices(&watching, "n2").is_some());
    assert_eq!(devices(&watching, "n1"), Some((4, 81_920)));
    assert_eq!(asks(&watching, "a/has"), Some((2, vec![1, 3])));
    let before = syncs();
    api.forget_versions(SLICES);
    api.forget_versions(CLAIMS);
    until("slices and claims are listed again", || unreadable() >= 4.0);
    until("they are watched again", || {
        !watching.condition().contains("resource.k8s.io")
    });
    assert_eq!((unreadable(), syncs()), (4.0, before));
    assert_eq!(devices(&watching, "n1"), Some((4, 81_920)));
    assert_eq!(asks(&watching, "a/has"), Some((2, vec![1, 3])));
    api.delete(&broken);
    until("a slice that cannot be read goes by its name", || {
        devices(&watching, "n1").is_none()
    });
    api.delete(&broken_claim);
    until("a claim that cannot be read goes by its name", || {
        asks(&watching, "a/has").is_none()
    });
}

#[test]
fn claims_are_read_in_the_watched_namespaces_only_and_slices_of_all_nodes() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &["a"]);
    assert_eq!(devices(&watching, "n1"), Some((4, 81_920)));
    assert_eq!(asks(&watching, "a/has"), Some((2, vec![1, 3])));
    assert!(
        watching.condition().contains("16 resources are watched"),
        "{}",
        watching.condition()
    );
    let other = WatchingServer::start(&api, &["b"]);
    assert_eq!(devices(&other, "n1"), Some((4, 81_920)));
}
