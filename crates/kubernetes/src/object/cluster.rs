//! Records from Kubernetes and Volcano objects other than pods.

use std::collections::BTreeMap;

use serde_json::Value;

use super::constraints;
use super::devices;
use super::fields::{
    self, FieldError, amounts, boolean, integer, integers, list, namespaced, required_text, text, texts, time,
};
use crate::names::QUEUE_NAME;
use pumice_engine::model::PREEMPTABLE;
use pumice_protocol::v1 as pb;

/// Annotation with the amount that is added to a node's CPU, in milli-cores (Volcano ed72c7c81,
/// `pkg/scheduler/api/node_info.go`).
const OVERSUBSCRIBED_CPU: &str = "volcano.sh/oversubscription-cpu";
/// Annotation with the amount that is added to a node's memory, in bytes.
const OVERSUBSCRIBED_MEMORY: &str = "volcano.sh/oversubscription-memory";
/// Queue of a pod group that names none.
pub const DEFAULT_QUEUE: &str = "default";
/// Queue above all others of a tree.
pub const ROOT_QUEUE: &str = "root";

/// Open queue with nothing but a name.
pub fn plain_queue(name: &str) -> pb::Queue {
    pb::Queue {
        name: name.to_owned(),
        state: pb::QueueState::Open.into(),
        ..pb::Queue::default()
    }
}

/// Queues that a cluster with queues lacks, and that Volcano makes when it starts: `root`, and `default` if jobs name it.
pub fn missing_queues(cluster: &pb::Cluster) -> Vec<pb::Queue> {
    let is_missing = |name: &str| cluster.queues.iter().all(|queue| queue.name != name);
    let names_default = cluster.jobs.iter().any(|job| job.queue == DEFAULT_QUEUE);
    let needed = [(ROOT_QUEUE, true), (DEFAULT_QUEUE, names_default)];
    let needed = needed
        .into_iter()
        .filter(|(_, is_needed)| *is_needed && !cluster.queues.is_empty());
    let missing = needed.filter(|(name, _)| is_missing(name));
    missing.map(|(name, _)| plain_queue(name)).collect()
}

type ImportObjectResult<T> = Result<T, FieldError>;

/// Reads a v1 Node: its labels, taints and images, `status.allocatable`, the Ready condition, `spec.unschedulable`, and the two
/// annotations by which Volcano adds oversubscribed CPU and memory.
pub(super) fn node(object: &Value) -> ImportObjectResult<pb::Node> {
    Ok(pb::Node {
        name: required_text(object, "metadata.name")?,
        uid: text(object, "metadata.uid")?,
        creation_time: time(object, "metadata.creationTimestamp")?,
        labels: texts(object, "metadata.labels")?.into_iter().collect(),
        allocatable: amounts(object, "status.allocatable")?,
        oversubscription: oversubscription(object)?,
        ready: ready(object)?,
        unschedulable: boolean(object, "spec.unschedulable")?.unwrap_or_default(),
        taints: constraints::taints(object)?,
        images: constraints::images(object)?,
        devices: devices::of_node(object)?,
        ..pb::Node::default()
    })
}

fn ready(object: &Value) -> ImportObjectResult<Option<bool>> {
    for condition in list(object, "status.conditions")? {
        if text(condition, "type")? == "Ready" {
            return Ok(Some(text(condition, "status")? == "True"));
        }
    }
    Ok(None)
}

fn oversubscription(object: &Value) -> ImportObjectResult<Option<pb::ResourceList>> {
    let annotations = texts(object, "metadata.annotations")?;
    let amount = |key: &str, suffix: &str| {
        let Some(text) = annotations.get(key) else {
            return Ok(None);
        };
        let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
        if digits {
            Ok(Some(format!("{text}{suffix}")))
        } else {
            Err(FieldError::new(
                format!("metadata.annotations[{key}]"),
                format!("`{text}` is not a number"),
            ))
        }
    };
    let cpu = amount(OVERSUBSCRIBED_CPU, "m")?.map(|amount| ("cpu".to_owned(), amount));
    let memory = amount(OVERSUBSCRIBED_MEMORY, "")?.map(|amount| ("memory".to_owned(), amount));
    let found = cpu.is_some() || memory.is_some();
    Ok(found.then(|| pb::ResourceList {
        items: cpu.into_iter().chain(memory).collect(),
    }))
}

/// Reads a v1 Namespace: its labels.
pub(super) fn namespace(object: &Value) -> ImportObjectResult<pb::Namespace> {
    Ok(pb::Namespace {
        name: required_text(object, "metadata.name")?,
        labels: texts(object, "metadata.labels")?,
        ..pb::Namespace::default()
    })
}

/// Reads a v1 `ResourceQuota`: its status.
pub(super) fn resource_quota(object: &Value) -> ImportObjectResult<pb::ResourceQuota> {
    Ok(pb::ResourceQuota {
        name: required_text(object, "metadata.name")?,
        hard: amounts(object, "status.hard")?,
        used: amounts(object, "status.used")?,
    })
}

/// Reads a `PodDisruptionBudget` of policy/v1: its selector and its status.
pub(super) fn disruption_budget(object: &Value) -> ImportObjectResult<pb::DisruptionBudget> {
    let selector = fields::get(object, "spec.selector").map(constraints::label_selector);
    Ok(pb::DisruptionBudget {
        name: required_text(object, "metadata.name")?,
        selector: selector.transpose()?,
        disruptions_allowed: integer(object, "status.disruptionsAllowed")?.unwrap_or_default(),
        disrupted_pods: texts(object, "status.disruptedPods")?.into_keys().collect(),
    })
}

/// Reads a Volcano Queue.
pub(super) fn queue(object: &Value) -> ImportObjectResult<pb::Queue> {
    Ok(pb::Queue {
        name: required_text(object, "metadata.name")?,
        uid: text(object, "metadata.uid")?,
        creation_time: time(object, "metadata.creationTimestamp")?,
        annotations: texts(object, "metadata.annotations")?.into_iter().collect(),
        weight: integer(object, "spec.weight")?,
        priority: integer(object, "spec.priority")?.unwrap_or_default(),
        state: queue_state(object)?.into(),
        parent: text(object, "spec.parent")?,
        reclaimable: boolean(object, "spec.reclaimable")?,
        capability: amounts(object, "spec.capability")?,
        deserved: amounts(object, "spec.deserved")?,
        guarantee: amounts(object, "spec.guarantee.resource")?,
        affinity: constraints::queue_affinity(object)?.map(Box::new),
        ..pb::Queue::default()
    })
}

fn queue_state(object: &Value) -> ImportObjectResult<pb::QueueState> {
    Ok(match text(object, "status.state")?.as_str() {
        "" => pb::QueueState::Unspecified,
        "Open" => pb::QueueState::Open,
        "Closed" => pb::QueueState::Closed,
        "Closing" => pb::QueueState::Closing,
        "Unknown" => pb::QueueState::Unknown,
        other => {
            return Err(FieldError::new(
                "status.state",
                format!("`{other}` is not a state of a queue"),
            ));
        }
    })
}

/// Reads a Volcano PodGroup. Its priority comes from its priority class, a separate object.
pub(super) fn job(object: &Value) -> ImportObjectResult<pb::Job> {
    let queue = text(object, "spec.queue")?;
    Ok(pb::Job {
        name: namespaced(object)?,
        uid: text(object, "metadata.uid")?,
        queue: if queue.is_empty() {
            DEFAULT_QUEUE.to_owned()
        } else {
            queue
        },
        creation_time: time(object, "metadata.creationTimestamp")?,
        phase: job_phase(object)?.into(),
        min_member: integer(object, "spec.minMember")?.unwrap_or_default(),
        min_resources: amounts(object, "spec.minResources")?,
        annotations: job_annotations(object)?,
        min_task_member: integers(object, "spec.minTaskMember")?,
        sub_group_policies: constraints::sub_group_policies(object)?,
        priority_class_name: Some(text(object, "spec.priorityClassName")?),
        ..pb::Job::default()
    })
}

/// Annotations of a pod group. Its label about preemption stands for a missing annotation, as in Volcano.
fn job_annotations(object: &Value) -> ImportObjectResult<BTreeMap<String, String>> {
    let mut annotations = texts(object, "metadata.annotations")?;
    add_preemptable_label(&mut annotations, &texts(object, "metadata.labels")?);
    Ok(annotations)
}

/// Adds the label about preemption to annotations that lack it.
pub(crate) fn add_preemptable_label(annotations: &mut BTreeMap<String, String>, labels: &BTreeMap<String, String>) {
    if let Some(label) = labels.get(PREEMPTABLE) {
        annotations
            .entry(PREEMPTABLE.to_owned())
            .or_insert_with(|| label.clone());
    }
}

/// Reads a `PodGroup` of `scheduling.k8s.io`. It may start as soon as its pods may; a label names its queue.
pub(super) fn workload_job(object: &Value) -> ImportObjectResult<pb::Job> {
    let queue = texts(object, "metadata.labels")?.remove(QUEUE_NAME);
    let least = integer(object, "spec.schedulingPolicy.gang.minCount")?;
    Ok(pb::Job {
        name: namespaced(object)?,
        uid: text(object, "metadata.uid")?,
        queue: queue
            .filter(|queue| !queue.is_empty())
            .unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        creation_time: time(object, "metadata.creationTimestamp")?,
        phase: pb::JobPhase::Inqueue.into(),
        priority: integer(object, "spec.priority")?.unwrap_or_default(),
        min_member: least.unwrap_or(1),
        annotations: texts(object, "metadata.annotations")?.into_iter().collect(),
        ..pb::Job::default()
    })
}

/// Reads a `PriorityClass`.
pub(super) fn priority_class(object: &Value) -> ImportObjectResult<pb::PriorityClass> {
    Ok(pb::PriorityClass {
        name: required_text(object, "metadata.name")?,
        value: integer(object, "value")?.ok_or_else(|| FieldError::new("value", "is missing"))?,
        global_default: boolean(object, "globalDefault")?.unwrap_or_default(),
        preemption_policy: preemption_policy(&text(object, "preemptionPolicy")?).into(),
    })
}

/// Policy of a `preemptionPolicy`; an absent one is unspecified.
pub(super) fn preemption_policy(text: &str) -> pb::PreemptionPolicy {
    match text {
        "" => pb::PreemptionPolicy::Unspecified,
        "Never" => pb::PreemptionPolicy::Never,
        _ => pb::PreemptionPolicy::LowerPriority,
    }
}

fn job_phase(object: &Value) -> ImportObjectResult<pb::JobPhase> {
    Ok(match text(object, "status.phase")?.as_str() {
        "" => pb::JobPhase::Unspecified,
        "Pending" => pb::JobPhase::Pending,
        "Inqueue" => pb::JobPhase::Inqueue,
        "Running" => pb::JobPhase::Running,
        "Unknown" => pb::JobPhase::Unknown,
        "Completed" => pb::JobPhase::Completed,
        other => {
            return Err(FieldError::new(
                "status.phase",
                format!("`{other}` is not a phase of a pod group"),
            ));
        }
    })
}
