//! Histories of a cluster: what is completed object by object equals what a file of all objects gives.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::import::ClusterImport;
use crate::object::{AmountRules, ObjectRecord, read_value};

/// Change of one object: its kind, its name, and its new content; `None`: it is deleted.
type Change = (ObjectKind, String, Option<Value>);

/// Records as a watch shows them, and what it holds for that.
#[derive(Default)]
struct WatchedRecords {
    devices: ClaimedDevices,
    /// Records without devices of slices and claims.
    plain_nodes: BTreeMap<String, pb::Node>,
    plain_tasks: BTreeMap<String, pb::Task>,
    nodes: BTreeMap<String, pb::Node>,
    tasks: BTreeMap<String, pb::Task>,
}

impl WatchedRecords {
    fn change(&mut self, (kind, name, object): &Change) {
        let affected = match object
            .as_ref()
            .map(|object| read_value(*kind, object, AmountRules::default()))
        {
            Some(Ok(ObjectRecord::Node(node))) => {
                self.plain_nodes.insert(name.clone(), node);
                self.show_node(name);
                AffectedRecords::default()
            }
            Some(Ok(ObjectRecord::Task(task, _, claims))) => {
                let affected = self.devices.put_pod(&task, claims);
                self.plain_tasks.insert(name.clone(), task);
                self.show_task(name);
                affected
            }
            Some(Ok(ObjectRecord::Device(object))) => self.devices.put(object),
            Some(other) => panic!("{other:?}"),
            None if kind.tells_devices() => self.devices.remove(*kind, name),
            None if *kind == ObjectKind::Node => {
                self.plain_nodes.remove(name);
                self.nodes.remove(name);
                AffectedRecords::default()
            }
            None => {
                self.plain_tasks.remove(name);
                self.tasks.remove(name);
                self.devices.remove_pod(name)
            }
        };
        affected.nodes.iter().for_each(|name| self.show_node(name));
        affected.tasks.iter().for_each(|name| self.show_task(name));
    }

    /// Shows a node; slices may come without theirs.
    fn show_node(&mut self, name: &str) {
        if let Some(mut node) = self.plain_nodes.get(name).cloned() {
            self.devices.complete_node(&mut node);
            self.nodes.insert(name.to_owned(), node);
        }
    }

    fn show_task(&mut self, name: &str) {
        let mut task = self.plain_tasks[name].clone();
        self.devices.complete_task(&mut task);
        self.tasks.insert(name.to_owned(), task);
    }
}

/// Records of a file of all objects.
fn imported<'o>(objects: impl Iterator<Item = &'o Value>) -> (Vec<pb::Node>, Vec<pb::Task>) {
    let mut import = ClusterImport::default();
    let items: Vec<&Value> = objects.collect();
    let text = json!({"kind": "List", "apiVersion": "v1", "items": items}).to_string();
    import.read("all.json", &text).unwrap();
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    let cluster = imported.cluster;
    (cluster.nodes, cluster.tasks)
}

fn object(kind: ObjectKind, name: &str, rest: &Value) -> Value {
    let version = if kind.tells_devices() {
        "resource.k8s.io/v1"
    } else {
        "v1"
    };
    let mut object = json!({"apiVersion": version, "kind": kind.name(), "metadata": {"name": name}});
    if kind.is_namespaced() {
        object["metadata"]["namespace"] = json!("ns");
    }
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// Changes of objects `0..names` of a kind.
fn changes(kind: ObjectKind, names: u32, rest: impl Strategy<Value = Value>) -> impl Strategy<Value = Change> {
    (0..names, option::weighted(0.8, rest)).prop_map(move |(number, rest)| {
        let name = format!("{}-{number}", kind.name().to_lowercase());
        let made = rest.map(|rest| object(kind, &name, &rest));
        (kind, kind.record_name("ns", &name), made)
    })
}

fn slices() -> impl Strategy<Value = Value> {
    let driver = prop_oneof![9 => Just("gpu.nvidia.com"), 1 => Just("dranet")];
    let devices = vec((0..3_u32, prop_oneof![5 => Just("A100"), 1 => Just("T4")]), 0..4);
    (driver, 0..3_u32, 0..2_u32, 0..3_u32, devices).prop_map(|(driver, node, pool, generation, devices)| {
        let devices: Vec<Value> = devices
            .into_iter()
            .map(|(number, model)| {
                json!({"name": format!("gpu-{number}"), "attributes": {"productName": {"string": model}},
                    "capacity": {"memory": {"value": "40Gi"}}})
            })
            .collect();
        json!({"spec": {"driver": driver, "nodeName": format!("node-{node}"), "devices": devices,
            "pool": {"name": format!("pool-{pool}"), "generation": generation}}})
    })
}

fn requests() -> impl Strategy<Value = Value> {
    let selectors = prop_oneof![4 => Just(json!([])), 1 => Just(json!([{"cel": {"expression": "true"}}]))];
    let memory = prop_oneof![3 => Just(json!({})), 1 => Just(json!({"memory": "10Gi"}))];
    (1..4_u32, memory, selectors).prop_map(|(count, memory, selectors)| {
        json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com",
            "count": count, "capacity": {"requests": memory}, "selectors": selectors}}]}})
    })
}

fn claims() -> impl Strategy<Value = Value> {
    let allocated = vec((0..2_u32, 0..3_u32), 0..4);
    (requests(), allocated).prop_map(|(requests, allocated)| {
        let device = |(pool, number): &(u32, u32)| {
            json!({"driver": "gpu.nvidia.com", "pool": format!("pool-{pool}"), "device": format!("gpu-{number}")})
        };
        let results: Vec<Value> = allocated.iter().map(device).collect();
        json!({"spec": requests, "status": {"allocation": {"devices": {"results": results}}}})
    })
}

fn pods() -> impl Strategy<Value = Value> {
    let claim = prop_oneof![
        3 => (0..3_u32).prop_map(|number| json!({"name": "x", "resourceClaimName": format!("resourceclaim-{number}")})),
        1 => (0..2_u32).prop_map(|number| json!({"name": "gpu", "resourceClaimTemplateName": format!("resourceclaimtemplate-{number}")})),
    ];
    let made = prop_oneof![
        2 => Just(json!([])),
        1 => (0..3_u32).prop_map(|number| json!([{"name": "gpu", "resourceClaimName": format!("resourceclaim-{number}")}])),
    ];
    let node = prop_oneof![1 => Just(String::new()), 2 => (0..3_u32).prop_map(|number| format!("node-{number}"))];
    (node, vec(claim, 0..3), made).prop_map(|(node, claims, made)| {
        json!({"spec": {"nodeName": node, "resourceClaims": claims, "priority": 1, "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "resourceClaimStatuses": made}})
    })
}

fn nodes() -> impl Strategy<Value = Value> {
    let shared = json!({"volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "1000"});
    prop_oneof![4 => Just(json!({"cpu": "8"})), 1 => Just(shared)]
        .prop_map(|allocatable| json!({"status": {"allocatable": allocatable}}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn each_step_of_a_history_shows_what_a_file_of_all_objects_gives(
        history in vec(prop_oneof![
            4 => changes(ObjectKind::ResourceSlice, 4, slices()),
            3 => changes(ObjectKind::ResourceClaim, 3, claims()),
            1 => changes(ObjectKind::ResourceClaimTemplate, 2, requests().prop_map(|spec| json!({"spec": {"spec": spec}}))),
            4 => changes(ObjectKind::Pod, 4, pods()),
            2 => changes(ObjectKind::Node, 3, nodes()),
        ], 1..48)
    ) {
        let mut watched = WatchedRecords::default();
        let mut objects = BTreeMap::new();
        for change in history {
            watched.change(&change);
            let (kind, name, object) = change;
            match object {
                Some(object) => drop(objects.insert((kind.name(), name), object)),
                None => drop(objects.remove(&(kind.name(), name))),
            }
            let (nodes, tasks) = imported(objects.values());
            prop_assert_eq!(watched.nodes.values().cloned().collect::<Vec<_>>(), nodes);
            prop_assert_eq!(watched.tasks.values().cloned().collect::<Vec<_>>(), tasks);
        }
    }
}

/// Index of empty entries after everything has gone.
#[test]
fn nothing_is_held_for_what_has_gone() {
    let mut devices = ClaimedDevices::default();
    let mut put =
        |kind, name: &str, rest: Value| match read_value(kind, &object(kind, name, &rest), AmountRules::default()) {
            Ok(ObjectRecord::Task(task, _, claims)) => devices.put_pod(&task, claims),
            Ok(ObjectRecord::Device(object)) => devices.put(object),
            other => panic!("{other:?}"),
        };
    let spec = json!({"driver": "gpu.x", "nodeName": "n", "devices": [{"name": "gpu-0"}]});
    put(ObjectKind::ResourceSlice, "s", json!({"spec": spec}));
    put(ObjectKind::ResourceClaim, "c", json!({"spec": {}}));
    put(ObjectKind::ResourceClaimTemplate, "t", json!({"spec": {}}));
    let spec =
        |claims: Value| json!({"spec": {"nodeName": "n", "containers": [{"name": "c"}], "resourceClaims": claims}});
    put(
        ObjectKind::Pod,
        "p",
        spec(json!([{"name": "a", "resourceClaimName": "c"}])),
    );
    put(
        ObjectKind::Pod,
        "q",
        spec(json!([{"name": "a", "resourceClaimTemplateName": "t"}])),
    );
    put(ObjectKind::Pod, "plain", spec(json!([])));
    assert_eq!(devices.pods.keys().collect::<Vec<_>>(), ["ns/p", "ns/q"]);
    for (kind, name) in [
        (ObjectKind::ResourceSlice, "s"),
        (ObjectKind::ResourceClaim, "ns/c"),
        (ObjectKind::ResourceClaimTemplate, "ns/t"),
    ] {
        devices.remove(kind, name);
    }
    devices.remove_pod("ns/p");
    devices.remove_pod("ns/q");
    let empty = ClaimedDevices::default();
    assert_eq!(format!("{devices:?}"), format!("{empty:?}"));
}
