//! Pod groups that Volcano's controller makes of pods that name none (Volcano ed72c7c81,
//! `pkg/controllers/podgroup/pg_controller_handler.go`, `buildPodGroupFromPod`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::names::{INHERITED_ANNOTATIONS, QUEUE_NAME};
use crate::object::fields::text;
use crate::object::{DEFAULT_QUEUE, add_preemptable_label, controller_reference};
use pumice_protocol::v1 as pb;

/// Scheduler whose pods the controller groups, if it is not told others.
const SCHEDULER: &str = "volcano";

/// Queue of the group that Volcano makes of a pod without one.
pub fn own_group_queue(task: &pb::Task) -> &str {
    let named = task.annotations.get(QUEUE_NAME).map(String::as_str);
    named.filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE)
}

/// Groups of the pods read so far.
#[derive(Debug, Default)]
pub(super) struct OwnPodGroups {
    /// Groups by name.
    pub(super) groups: BTreeMap<String, pb::Job>,
    /// Name of the group by task.
    pub(super) members: BTreeMap<String, String>,
}

impl OwnPodGroups {
    /// Notes the group that the controller would make of a pod that names none: one for all pods of a workload, or one for the pod
    /// alone. Pods of other schedulers get none.
    pub(super) fn note(&mut self, task: &pb::Task, pod: &Value) {
        if !task.job.is_empty() || !text(pod, "spec.schedulerName").is_ok_and(|name| name == SCHEDULER) {
            return;
        }
        let (namespace, pod_name) = task.name.split_once('/').unwrap_or(("default", &task.name));
        let owner = controller_reference(pod).ok().flatten();
        let owner = owner
            .and_then(|owner| text(owner, "uid").ok())
            .filter(|uid| !uid.is_empty());
        // A file written by hand has no uid.
        let own = if task.uid.is_empty() { pod_name } else { &task.uid };
        let name = format!("{namespace}/podgroup-{}", owner.as_deref().unwrap_or(own));
        self.members.insert(task.name.clone(), name.clone());
        let group = self.groups.entry(name).or_insert_with_key(|name| group_of(task, name));
        // The controller made the group of a pod with a node long ago, and the scheduler admitted it.
        if !task.node.is_empty() {
            group.set_phase(pb::JobPhase::Running);
        }
    }
}

/// Group that a pod gets.
fn group_of(task: &pb::Task, name: &str) -> pb::Job {
    let inherited = INHERITED_ANNOTATIONS.iter().filter_map(|key| {
        let value = task.annotations.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    let mut annotations = inherited.collect();
    add_preemptable_label(&mut annotations, &task.labels);
    pb::Job {
        name: name.to_owned(),
        queue: own_group_queue(task).to_owned(),
        creation_time: task.creation_time,
        priority_class_name: Some(task.priority_class_name.clone()),
        phase: pb::JobPhase::Pending.into(),
        min_member: 1,
        min_resources: task.requests.clone(),
        annotations,
        ..pb::Job::default()
    }
}
