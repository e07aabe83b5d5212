//! Slices and claims as drivers and users write them.

use serde_json::{Value, json};

use super::*;
use crate::import::ClusterImport;
use crate::object::{AmountRules, ObjectLimits, ObjectRecord, object_kind, read_json_of, read_value};

/// Cluster from these objects, and the notes of the import.
fn import(objects: &[Value]) -> (pb::Cluster, Vec<String>) {
    let mut import = ClusterImport::default();
    let text = json!({"kind": "List", "apiVersion": "v1", "items": objects}).to_string();
    import.read("claims.json", &text).unwrap();
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    (imported.cluster, imported.notes.into_keys().collect())
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}})
}

fn slice_object(name: &str, generation: u32, devices: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
        "devices": devices}})
}

fn gpu(name: &str, model: &str) -> Value {
    json!({"name": name, "attributes": {"type": {"string": "gpu"}, "productName": {"string": model}},
        "capacity": {"memory": {"value": "80Gi"}}})
}

fn claim_object(name: &str, requests: &Value, allocated: &[&str]) -> Value {
    let results = allocated
        .iter()
        .map(|device| json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}));
    let results: Vec<Value> = results.collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"devices": {"requests": requests}}, "status": {"allocation": {"devices": {"results": results}}}})
}

fn pod(name: &str, claims: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": {
        "nodeName": "n", "resourceClaims": claims, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"}})
}

fn devices_of(cluster: &pb::Cluster, task: &str) -> Option<pb::DeviceRequest> {
    let task = cluster.tasks.iter().find(|own| own.name == task).unwrap();
    task.constraints.as_ref()?.devices.clone()
}

fn unevaluated(cluster: &pb::Cluster) -> Vec<&str> {
    let fields = cluster.tasks.iter().flat_map(|task| &task.unevaluated_fields);
    fields.map(String::as_str).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn slices_of_the_latest_generation_are_the_nodes_devices() {
    let old = slice_object("a", 1, &json!([gpu("gpu-7", "OLD")]));
    let devices = json!([gpu("gpu-0", "A100"), gpu("gpu-1", "A100"),
        {"name": "gpu-0-mig-1", "attributes": {"type": {"string": "mig"}}}]);
    let (cluster, notes) = import(&[old, slice_object("b", 2, &devices), node()]);
    let own = cluster.nodes[0].devices.clone().unwrap();
    assert_eq!((&*own.model, own.count, own.memory_mib), ("A100", 2, 81_920));
    assert_eq!(notes, NONE);
    let older = json!([{"name": "gpu-0", "basic": {"attributes": {"gpu.nvidia.com/productName": {"string": "T4"}},
        "capacity": {"memory": {"value": "16Gi"}}}}]);
    let (cluster, _) = import(&[node(), slice_object("a", 1, &older)]);
    assert_eq!(cluster.nodes[0].devices.clone().unwrap().model, "T4");
}

#[test]
fn devices_of_several_models_are_not_read() {
    let devices = json!([gpu("gpu-0", "A100"), gpu("gpu-1", "T4")]);
    let (cluster, notes) = import(&[node(), slice_object("a", 1, &devices)]);
    assert_eq!(
        (cluster.nodes[0].devices.clone(), notes),
        (None, vec![MIXED.to_owned()])
    );
}

#[test]
fn claims_tell_number_share_and_allocated_devices() {
    let devices: Vec<Value> = (0..12).map(|number| gpu(&format!("gpu-{number}"), "A100")).collect();
    let two = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]);
    let share = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com",
        "capacity": {"requests": {"memory": "10Gi"}}}}]);
    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": {"devices": {"requests": share}}}});
    let (cluster, notes) = import(&[
        pod("two", &json!([{"name": "gpu", "resourceClaimName": "two"}])),
        pod("share", &json!([{"name": "gpu", "resourceClaimTemplateName": "t"}])),
        claim_object("two", &two, &["gpu-2", "gpu-10"]),
        template,
        slice_object("a", 1, &json!(devices)),
        node(),
    ]);
    let own = devices_of(&cluster, "ns/two").unwrap();
    // gpu-10 comes behind gpu-9.
    assert_eq!(
        (own.count, own.milli, own.memory_mib, own.assigned),
        (2, 0, 0, vec![2, 10])
    );
    let own = devices_of(&cluster, "ns/share").unwrap();
    assert_eq!((own.count, own.memory_mib, own.assigned), (1, 10_240, vec![]));
    assert_eq!((unevaluated(&cluster), notes), (vec![], vec![]));
}

#[test]
fn devices_of_a_node_that_reports_none_are_not_assigned() {
    let names: Vec<String> = (0..65).map(|number| format!("gpu-{number}")).collect();
    let devices: Vec<Value> = names.iter().map(|name| gpu(name, "A100")).collect();
    let request = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]);
    let (cluster, _) = import(&[
        node(),
        slice_object("s", 1, &json!(devices)),
        claim_object("c", &request, &["gpu-64"]),
        pod("p", &json!([{"name": "g", "resourceClaimName": "c"}])),
    ]);
    assert_eq!(cluster.nodes[0].devices, None);
    let asked = devices_of(&cluster, "ns/p").unwrap();
    assert_eq!((asked.count, asked.assigned), (1, vec![]));
}

#[test]
fn claims_that_are_not_read_whole_say_so() {
    let by_expression = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com",
        "selectors": [{"cel": {"expression": "true"}}]}}]);
    let all = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}]);
    let other = json!([{"name": "nic", "exactly": {"deviceClassName": "dranet"}}]);
    let alternatives = json!([{"name": "gpu", "firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}]}]);
    for (requests, count) in [(by_expression, 1), (all, 0), (other, 0), (alternatives, 0)] {
        let (cluster, notes) = import(&[
            claim_object("c", &requests, &[]),
            pod("p", &json!([{"name": "gpu", "resourceClaimName": "c"}])),
        ]);
        let own = devices_of(&cluster, "ns/p").map_or(0, |own| own.count);
        assert_eq!((own, unevaluated(&cluster)), (count, vec![CLAIM_FIELD]), "{requests}");
        assert_eq!(notes, [NOT_READ]);
    }
    let (cluster, notes) = import(&[pod("p", &json!([{"name": "gpu", "resourceClaimName": "missing"}]))]);
    assert_eq!(
        (unevaluated(&cluster), notes),
        (vec![CLAIM_FIELD], vec![NOT_READ.to_owned()])
    );
}

#[test]
fn pods_that_share_a_claim_do_not_each_count_its_devices() {
    let one = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]);
    let claims = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    let (cluster, _) = import(&[claim_object("c", &one, &[]), pod("p", &claims), pod("q", &claims)]);
    assert_eq!(unevaluated(&cluster), [CLAIM_FIELD, CLAIM_FIELD]);
    assert_eq!(devices_of(&cluster, "ns/p"), None);
}

#[test]
fn a_pod_that_names_a_claim_twice_does_not_count_its_devices_twice() {
    let one = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]);
    let claims = json!([{"name": "a", "resourceClaimName": "c"}, {"name": "b", "resourceClaimName": "c"}]);
    let (cluster, _) = import(&[claim_object("c", &one, &[]), pod("p", &claims)]);
    assert_eq!(unevaluated(&cluster), [CLAIM_FIELD]);
    assert_eq!(devices_of(&cluster, "ns/p"), None);
}

#[test]
fn a_claim_with_a_senseless_number_is_rejected() {
    let mut import = ClusterImport::default();
    let zero = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 0}}]);
    import
        .read("c.json", &claim_object("c", &zero, &[]).to_string())
        .unwrap();
    let rejected = import.finish().rejected.remove(0);
    assert_eq!(
        (&*rejected.object, &*rejected.error.field),
        ("ResourceClaim ns/c", "spec.devices.requests[].count")
    );
    // Its pods name it as missing; no job of its name is marked.
    assert_eq!(rejected.record, None);
}

/// Devices after an object that is read by its bytes, as a watch reads it.
fn put(devices: &mut ClaimedDevices, object: &Value) -> AffectedRecords {
    let kind = object_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
    let by_value = read_value(kind, object, AmountRules::default()).unwrap();
    let bytes = object.to_string();
    let by_bytes = read_json_of(kind, bytes.as_bytes(), AmountRules::default(), ObjectLimits::default()).unwrap();
    assert_eq!(by_bytes, by_value, "the fields that are read are all that matter");
    if let ObjectRecord::Task(task, _, claims) = by_bytes {
        return devices.put_pod(&task, claims);
    }
    let ObjectRecord::Device(object) = by_bytes else {
        panic!("{object}")
    };
    devices.put(object)
}

fn affected(nodes: &[&str], tasks: &[&str]) -> AffectedRecords {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    AffectedRecords {
        nodes: names(nodes),
        tasks: names(tasks),
    }
}

#[test]
fn a_change_names_the_records_that_it_changes_and_no_others() {
    let mut devices = ClaimedDevices::default();
    let one = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {}}],
        "capacity": {"requests": {"memory": "10Gi"}}}}]);
    let none = affected(&[], &[]);
    let slice = |generation, devices: Value| slice_object("a", generation, &devices);
    let gpus = json!([gpu("gpu-0", "A100"), {"name": "gpu-1", "basic": {"attributes": {"gpu.x/model": {"string": "A100"}}, "capacity": {"memory": "1Gi"}}}]);
    assert_eq!(
        put(&mut devices, &slice(1, json!([gpu("gpu-0", "A100")]))),
        affected(&["n"], &[])
    );
    assert_eq!(
        put(&mut devices, &slice(2, json!([gpu("gpu-0", "A100")]))),
        none,
        "a generation alone is no change"
    );
    let named = |claim: &str| json!([{"name": "gpu", "resourceClaimName": claim}]);
    assert_eq!(put(&mut devices, &pod("p", &named("c"))), none);
    assert_eq!(put(&mut devices, &pod("other", &named("d"))), none);
    assert_eq!(
        put(&mut devices, &claim_object("c", &one, &[])),
        affected(&[], &["ns/p"])
    );
    assert_eq!(put(&mut devices, &claim_object("c", &one, &[])), none);
    assert_eq!(
        put(&mut devices, &claim_object("c", &one, &["gpu-0"])),
        affected(&[], &["ns/p"])
    );
    assert_eq!(
        put(&mut devices, &slice(3, gpus)),
        affected(&["n"], &["ns/other", "ns/p"])
    );
    // A second pod shares the claim, a third changes nothing for the two.
    assert_eq!(put(&mut devices, &pod("q", &named("c"))), affected(&[], &["ns/p"]));
    assert_eq!(put(&mut devices, &pod("r", &named("c"))), none);
    assert_eq!(
        put(&mut devices, &claim_object("c", &json!([]), &[])),
        affected(&[], &["ns/p", "ns/q", "ns/r"])
    );
    assert_eq!(devices.remove_pod("ns/r"), none);
    assert_eq!(devices.remove_pod("ns/p"), affected(&[], &["ns/q"]));
    assert_eq!(
        devices.remove(ObjectKind::ResourceClaim, "ns/c"),
        affected(&[], &["ns/q"])
    );
    assert_eq!(
        devices.remove(ObjectKind::ResourceSlice, "a"),
        affected(&["n"], &["ns/other", "ns/q"])
    );
}

#[test]
fn a_template_is_that_of_each_pod_until_the_claim_is_made() {
    let mut devices = ClaimedDevices::default();
    let template = |name: &str, count: u32| {
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}]);
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"spec": {"devices": {"requests": requests, "constraints": []}}}})
    };
    let named = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    put(&mut devices, &pod("p", &named));
    assert_eq!(
        put(&mut devices, &pod("q", &named)),
        affected(&[], &[]),
        "each has a claim of its own"
    );
    assert_eq!(put(&mut devices, &template("t", 2)), affected(&[], &["ns/p", "ns/q"]));
    let mut made = pod("p", &named);
    made["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "p-gpu-x"}]);
    assert_eq!(put(&mut devices, &made), affected(&[], &[]));
    assert_eq!(put(&mut devices, &template("t", 1)), affected(&[], &["ns/q"]));
    assert_eq!(put(&mut devices, &template("other", 1)), affected(&[], &[]));
}

#[test]
fn a_new_generation_of_a_pool_changes_all_of_its_nodes() {
    let mut devices = ClaimedDevices::default();
    let slice = |name: &str, generation: u32, node: &str| {
        let mut slice = slice_object(name, generation, &json!([gpu("gpu-0", "A100")]));
        slice["spec"]["nodeName"] = json!(node);
        slice
    };
    put(&mut devices, &slice("a", 1, "x"));
    put(&mut devices, &slice("b", 1, "y"));
    assert_eq!(put(&mut devices, &slice("c", 2, "z")), affected(&["x", "y", "z"], &[]));
    assert_eq!(put(&mut devices, &slice("a", 2, "x")), affected(&["x"], &[]));
    assert_eq!(devices.remove(ObjectKind::ResourceSlice, "a"), affected(&["x"], &[]));
    // The last slice of its generation.
    assert_eq!(
        devices.remove(ObjectKind::ResourceSlice, "c"),
        affected(&["y", "z"], &[])
    );
}

#[test]
fn objects_that_cannot_be_read_leave_the_former_ones_in_force() {
    let mut former = ClaimedDevices::default();
    put(&mut former, &slice_object("a", 1, &json!([gpu("gpu-0", "A100")])));
    let mut devices = ClaimedDevices::default();
    assert_eq!(
        devices.put_former(&former, ObjectKind::ResourceSlice, "a"),
        affected(&["n"], &[])
    );
    assert_eq!(
        devices.put_former(&former, ObjectKind::ResourceSlice, "b"),
        affected(&[], &[])
    );
    put(&mut former, &claim_object("c", &json!([]), &[]));
    put(
        &mut devices,
        &pod("p", &json!([{"name": "gpu", "resourceClaimName": "c"}])),
    );
    assert_eq!(
        devices.put_former(&former, ObjectKind::ResourceClaimTemplate, "ns/c"),
        affected(&[], &[])
    );
    assert_eq!(
        devices.put_former(&former, ObjectKind::ResourceClaim, "ns/c"),
        affected(&[], &["ns/p"])
    );
}
