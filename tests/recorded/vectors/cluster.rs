//! Converts a recorded cluster, task and policy to wire messages.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice_engine::policy::{Compatibility, Release};
use pumice_kubernetes::import::AmountRules;
use serde_json::Value;

use super::pod_cluster;

/// Map of quantity strings; `None` where the case has none.
pub(crate) fn resources(map: &Value) -> Option<pb::ResourceList> {
    let items = map.as_object()?.iter();
    Some(pb::ResourceList {
        items: items.map(|(name, quantity)| (name.clone(), text(quantity))).collect(),
    })
}

/// Text of a value: a string as it is, anything else as it is written.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Map of texts; empty where the case has none.
pub(crate) fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), text(value))).collect()
}

fn seconds(value: &Value) -> Option<prost_types::Timestamp> {
    value
        .as_i64()
        .map(|seconds| prost_types::Timestamp { seconds, nanos: 0 })
}

fn number(value: &Value) -> i32 {
    value
        .as_i64()
        .and_then(|number| i32::try_from(number).ok())
        .unwrap_or(0)
}

fn name(value: &Value) -> String {
    text(&value["name"])
}

/// Members of a list; none where the case has no such list.
pub(crate) fn members(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Complete cluster of a case.
pub(crate) fn cluster(cluster: &Value) -> pb::Cluster {
    let jobs = members(&cluster["jobs"]);
    let rules = pod_cluster::rules(cluster);
    let with_group = jobs.iter().filter(|job| job["noPodGroup"] != true);
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: members(&cluster["nodes"]).iter().map(node).collect(),
        queues: members(&cluster["queues"]).iter().map(queue).collect(),
        jobs: with_group.map(job).collect(),
        tasks: jobs.iter().flat_map(|job| tasks(job, rules)).collect(),
        ..pb::Cluster::default()
    }
}

/// Complete cluster of a case of Volcano's plugins for queues: a task whose priority is not set has the reference's 1.
pub(crate) fn queue_cluster(recorded: &Value) -> pb::Cluster {
    let mut sent = cluster(recorded);
    let recorded = members(&recorded["jobs"]).iter().flat_map(|job| members(&job["tasks"]));
    for (task, recorded) in sent.tasks.iter_mut().zip(recorded) {
        if recorded["priority"].is_null() {
            task.priority = 1;
        }
    }
    sent
}

fn node(node: &Value) -> pb::Node {
    pb::Node {
        name: name(node),
        labels: texts(&node["labels"]),
        allocatable: resources(&node["allocatable"]),
        unattributed_used: resources(&node["used"]),
        ..pb::Node::default()
    }
}

fn queue(queue: &Value) -> pb::Queue {
    pb::Queue {
        name: name(queue),
        annotations: texts(&queue["annotations"]),
        creation_time: seconds(&queue["creationTimestamp"]),
        weight: queue["weight"].as_i64().and_then(|weight| i32::try_from(weight).ok()),
        priority: number(&queue["priority"]),
        state: queue_state(&queue["state"]).into(),
        parent: queue["parent"].as_str().unwrap_or_default().to_owned(),
        capability: resources(&queue["capability"]),
        deserved: resources(&queue["deserved"]),
        guarantee: resources(&queue["guarantee"]),
        affinity: queue.get("affinity").map(|affinity| Box::new(queue_affinity(affinity))),
        ..pb::Queue::default()
    }
}

fn queue_affinity(affinity: &Value) -> pb::QueueAffinity {
    let names = |list: &Value| members(list).iter().map(text).collect();
    let lists = |side: &Value| pb::NodeGroupLists {
        required: names(&side["requiredDuringSchedulingIgnoredDuringExecution"]),
        preferred: names(&side["preferredDuringSchedulingIgnoredDuringExecution"]),
    };
    pb::QueueAffinity {
        node_group_affinity: affinity.get("nodeGroupAffinity").map(lists),
        node_group_anti_affinity: affinity.get("nodeGroupAntiAffinity").map(lists),
    }
}

/// State on the wire for a recorded one. A missing one is Open. The wire has no empty state, which is not Open in the
/// reference, as Unknown is not.
fn queue_state(state: &Value) -> pb::QueueState {
    match state.as_str() {
        None => pb::QueueState::Open,
        Some("") => pb::QueueState::Unknown,
        Some(name) => pb::QueueState::from_str_name(&format!("QUEUE_STATE_{}", name.to_uppercase()))
            .unwrap_or_else(|| panic!("a recording has the unknown queue state {name:?}")),
    }
}

/// Phase on the wire for a recorded one.
fn job_phase(phase: &Value) -> pb::JobPhase {
    let name = format!("JOB_PHASE_{}", phase.as_str().unwrap_or_default().to_uppercase());
    pb::JobPhase::from_str_name(&name).unwrap_or_default()
}

/// `namespace/name` of a recorded job or task.
pub(crate) fn key(namespace: &Value, name: &Value) -> String {
    format!("{}/{}", text(namespace), text(name))
}

fn job(job: &Value) -> pb::Job {
    pb::Job {
        name: key(&job["namespace"], &job["name"]),
        queue: text(&job["queue"]),
        creation_time: seconds(&job["creationTimestamp"]),
        priority: number(&job["priority"]),
        phase: job_phase(&job["phase"]).into(),
        min_member: number(&job["minAvailable"]),
        min_resources: resources(&job["minResources"]),
        ..pb::Job::default()
    }
}

fn tasks(job: &Value, rules: AmountRules) -> impl Iterator<Item = pb::Task> + '_ {
    members(&job["tasks"]).iter().map(move |task| {
        let plain = plain_task(job, task);
        if !task["spec"].is_object() {
            return plain;
        }
        let derived = pod_cluster::task(&job["namespace"], task, rules);
        pb::Task {
            requests: derived.requests,
            gated: plain.gated || derived.gated,
            scheduling_gates: derived.scheduling_gates,
            ..plain
        }
    })
}

fn plain_task(job: &Value, task: &Value) -> pb::Task {
    pb::Task {
        name: key(&job["namespace"], &task["name"]),
        job: key(&job["namespace"], &job["name"]),
        priority: number(&task["priority"]),
        status: status(task["status"].as_str().unwrap_or_default()).into(),
        node: task["node"].as_str().unwrap_or_default().to_owned(),
        creation_time: seconds(&task["creationTimestamp"]),
        gated: task["gated"].as_bool().unwrap_or_default(),
        requests: Some(resources(&task["request"]).unwrap_or_default()),
        ..pb::Task::default()
    }
}

/// Status on the wire for a recorded one.
pub(crate) fn status(name: &str) -> pb::TaskStatus {
    pb::TaskStatus::from_str_name(&format!("TASK_STATUS_{}", name.to_uppercase()))
        .unwrap_or_else(|| panic!("a recording has the unknown task status {name:?}"))
}

/// Task of a case's request.
pub(crate) fn requested_task(request: &Value) -> pb::Task {
    pb::Task {
        name: key(&request["namespace"], &request["name"]),
        annotations: texts(&request["annotations"]),
        requests: Some(resources(&request["resources"]).unwrap_or_default()),
        ..pb::Task::default()
    }
}

/// Policy of one plugin, its arguments as they were recorded.
pub(crate) fn plugin_tiers(plugin: &str, arguments: &Value) -> String {
    format!("[{{\"plugins\": [{{\"name\": {plugin:?}, \"arguments\": {arguments}}}]}}]")
}

/// Release that a case was recorded of.
pub(crate) fn release(case: &Value) -> &str {
    case["release"].as_str().unwrap_or("upstream")
}

/// Rules of the release of a case.
pub(crate) fn followed(case: &Value) -> Release {
    Compatibility::from_name(release(case)).unwrap().release()
}

/// True if the release of a case reserves a minimum once all plugins voted for it.
pub(crate) fn reserves_after_votes(case: &Value) -> bool {
    followed(case).rules().reserves_after_votes
}

/// Policy document with these tiers, read as the release of the case reads it.
pub(crate) fn document(case: &Value, tiers: &str) -> String {
    let release = release(case);
    format!("actions: \"allocate\"\ntiers: {tiers}\npumice: {{compatibility: {release}}}\n")
}

/// Reference to an inline cluster, which leaves nothing behind.
pub(crate) fn inline_ref(cluster: pb::Cluster, document: String) -> pb::EvaluationRef {
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(pb::InlineSnapshot {
            cluster: Some(cluster),
            policy_document: document,
            ..pb::InlineSnapshot::default()
        }))),
        ..pb::EvaluationRef::default()
    }
}
