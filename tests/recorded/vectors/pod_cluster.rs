//! Clusters of the families about pods and nodes: nodes and pods are objects, read by the importer of dumps.

use prost_types::Timestamp;
use pumice::server::pb;
use pumice_engine::plugin::DecisionTime;
use pumice_engine::policy::Compatibility;
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use pumice_kubernetes::object::{ObjectKind, ObjectRecord, read_value};
use serde_json::{Map, Value, json};

use super::cluster::{self, members, text};
use super::job_plugins::NOW;

/// Complete cluster of a case: nodes and pods through the importer, queues and jobs from their recorded fields.
pub(crate) fn cluster(case: &Value) -> pb::Cluster {
    let (recorded, now) = (&case["cluster"], time(case));
    let mut objects: Vec<Value> = members(&recorded["nodes"]).iter().map(node).collect();
    let mut tasks: Vec<(String, &Value, String)> = Vec::new();
    for job in members(&recorded["jobs"]) {
        let key = cluster::key(&job["namespace"], &job["name"]);
        for task in members(&job["tasks"]) {
            objects.push(pod(&job["namespace"], task, now));
            tasks.push((cluster::key(&job["namespace"], &task["name"]), task, key.clone()));
        }
    }
    for task in members(&recorded["pods"]) {
        objects.push(pod(&task["namespace"], task, now));
        tasks.push((cluster::key(&task["namespace"], &task["name"]), task, String::new()));
    }
    let mut import = ClusterImport::new(rules(recorded));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    import.read("case.json", &list.to_string()).unwrap();
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    let imported = imported.cluster;
    let plain = cluster::cluster(recorded);
    let place = |pod: pb::Task| {
        let (_, recorded, job) = tasks.iter().find(|(name, ..)| *name == pod.name)?;
        Some(pb::Task {
            job: job.clone(),
            status: cluster::status(recorded["status"].as_str().unwrap_or_default()).into(),
            node: recorded["node"].as_str().unwrap_or_default().to_owned(),
            ..pod
        })
    };
    pb::Cluster {
        nodes: in_order(&recorded["nodes"], imported.nodes),
        tasks: imported.tasks.into_iter().filter_map(place).collect(),
        ..plain
    }
}

/// Time of a case, or the day of the recordings.
pub(crate) fn time(case: &Value) -> Timestamp {
    let read = case["now"].as_str().map(|now| now.parse().unwrap());
    read.unwrap_or(Timestamp { seconds: NOW, nanos: 0 })
}

/// Seconds that the time zone of a case is ahead of UTC: by the offset of its time, `+09:00` for example.
pub(crate) fn utc_offset(case: &Value) -> i32 {
    let now = case["now"].as_str().unwrap_or("Z");
    if now.ends_with('Z') {
        return 0;
    }
    let offset = now.get(now.len() - 6..).unwrap();
    let (hours, minutes) = (offset.get(1..3).unwrap(), offset.get(4..).unwrap());
    let seconds = hours.parse::<i32>().unwrap() * 3600 + minutes.parse::<i32>().unwrap() * 60;
    if offset.starts_with('-') { -seconds } else { seconds }
}

/// Time of a decision of a case.
pub(crate) fn decision_time(case: &Value) -> DecisionTime {
    DecisionTime {
        seconds: time(case).seconds,
        utc_offset: utc_offset(case),
    }
}

/// Rules of the release of a recorded cluster for the amounts of its pods.
pub(crate) fn rules(recorded: &Value) -> AmountRules {
    let release = recorded["release"].as_str().unwrap_or("upstream");
    let compatibility = Compatibility::from_name(release).unwrap();
    AmountRules::from_name("volcano")
        .unwrap()
        .of_release(compatibility.release())
}

/// Task of one recorded pod.
pub(crate) fn task(namespace: &Value, task: &Value, rules: AmountRules) -> pb::Task {
    match read_value(ObjectKind::Pod, &pod(namespace, task, time(&Value::Null)), rules) {
        Ok(ObjectRecord::Task(task, ..)) => task,
        other => panic!("{other:?}"),
    }
}

/// Nodes in the order of the case.
fn in_order(recorded: &Value, mut nodes: Vec<pb::Node>) -> Vec<pb::Node> {
    let names: Vec<String> = members(recorded).iter().map(|node| text(&node["name"])).collect();
    nodes.sort_by_key(|node| names.iter().position(|name| *name == node.name));
    nodes
}

fn node(node: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node["name"], "labels": node["labels"]},
        "spec": {"taints": node["taints"], "unschedulable": node["unschedulable"]},
        "status": {"allocatable": node["allocatable"], "images": node["images"]},
    })
}

/// Pod of a task: its spec as it is recorded, with the requests in the first container.
fn pod(namespace: &Value, task: &Value, now: Timestamp) -> Value {
    let mut spec = task["spec"].as_object().cloned().unwrap_or_else(Map::new);
    if members(&Value::from(spec.get("containers").cloned())).is_empty() {
        spec.insert("containers".to_owned(), json!([{"name": "c"}]));
    }
    let first = spec.get_mut("containers").and_then(|list| list.get_mut(0));
    if let (Some(first), true) = (first.and_then(Value::as_object_mut), task["request"].is_object()) {
        let resources = first.entry("resources").or_insert_with(|| json!({}));
        resources["requests"] = task["request"].clone();
    }
    // The reference reads the spec as it is: no limit becomes a request there.
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
                resources.remove("limits");
            }
        }
    }
    if let Some(priority) = task.get("priority") {
        spec.insert("priority".to_owned(), priority.clone());
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": task["name"], "namespace": namespace,
            "labels": task["labels"], "annotations": task["annotations"],
        },
        "spec": spec,
        // The recorded spec is the one that the API server stored.
        "status": status(task, now),
    })
}

/// Status of the pod of a task. A pending one says the same of a task without conditions.
fn status(task: &Value, now: Timestamp) -> Value {
    let conditions = members(&task["conditions"]).iter().map(|condition| {
        let age = condition["age"].as_i64().unwrap();
        let at = Timestamp {
            seconds: now.seconds - age,
            nanos: 0,
        };
        json!({"type": condition["type"], "status": condition["status"], "lastTransitionTime": at.to_string()})
    });
    let conditions: Vec<Value> = conditions.collect();
    let phase = match (task["phase"].as_str(), task["status"].as_str()) {
        (Some(phase), _) => phase,
        (_, Some("Running" | "Releasing")) if !conditions.is_empty() => "Running",
        _ => "Pending",
    };
    json!({"phase": phase, "conditions": conditions})
}
