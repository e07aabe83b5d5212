//! Pod groups that Volcano's controller makes of pods that name none (Volcano ed72c7c81,
//! `pkg/controllers/podgroup/pg_controller_handler.go`, `buildPodGroupFromPod`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::DEFAULT_QUEUE;
use crate::object::fields::{FieldError, boolean, list, text};
use pumice_protocol::v1 as pb;

/// Scheduler whose pods the controller groups, if it is not told others.
const SCHEDULER: &str = "volcano";

/// Annotation of a pod that names the queue of its group.
const QUEUE_ANNOTATION: &str = "scheduling.volcano.sh/queue-name";

/// Annotations that the group of a pod takes over from it.
const INHERITED_ANNOTATIONS: [&str; 5] = [
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
];

/// Groups of the pods read so far.
#[derive(Debug, Default)]
pub(super) struct OwnPodGroups {
    groups: BTreeMap<String, pb::Job>,
    /// Name of the group by task.
    members: BTreeMap<String, String>,
}

impl OwnPodGroups {
    /// Notes the group that the controller would make of a pod that names none: one for all pods of a workload, or one for the pod
    /// alone. Pods of other schedulers get none.
    pub(super) fn note(&mut self, task: &pb::Task, pod: &Value) -> Result<(), FieldError> {
        if !task.job.is_empty() || text(pod, "spec.schedulerName")? != SCHEDULER {
            return Ok(());
        }
        let (namespace, pod_name) = task.name.split_once('/').unwrap_or(("default", &task.name));
        // A file written by hand has no uid.
        let own = if task.uid.is_empty() { pod_name } else { &task.uid };
        let owner = controller_uid(pod)?;
        let name = format!("{namespace}/podgroup-{}", owner.as_deref().unwrap_or(own));
        self.members.insert(task.name.clone(), name.clone());
        let group = self.groups.entry(name).or_insert_with_key(|name| {
            let queue = task.annotations.get(QUEUE_ANNOTATION).filter(|queue| !queue.is_empty());
            let inherited = INHERITED_ANNOTATIONS.iter().filter_map(|key| {
                let value = task.annotations.get(*key)?;
                Some(((*key).to_owned(), value.clone()))
            });
            pb::Job {
                name: name.clone(),
                queue: queue.map_or(DEFAULT_QUEUE, String::as_str).to_owned(),
                creation_time: task.creation_time,
                priority_class_name: Some(task.priority_class_name.clone()),
                phase: pb::JobPhase::Pending.into(),
                min_member: 1,
                min_resources: task.requests.clone(),
                annotations: inherited.collect(),
                ..pb::Job::default()
            }
        });
        // The controller made the group of a pod with a node long ago, and the scheduler admitted it.
        if !task.node.is_empty() {
            group.set_phase(pb::JobPhase::Running);
        }
        Ok(())
    }

    /// Puts the groups into the jobs, and their names into the tasks.
    pub(super) fn apply(self, jobs: &mut BTreeMap<String, pb::Job>, tasks: &mut BTreeMap<String, pb::Task>) {
        for (task, group) in self.members {
            if let Some(task) = tasks.get_mut(&task).filter(|task| task.job.is_empty()) {
                task.job = group;
            }
        }
        for (name, group) in self.groups {
            jobs.entry(name).or_insert(group);
        }
    }
}

/// Uid of the workload that controls a pod. `None`: the pod has none.
fn controller_uid(pod: &Value) -> Result<Option<String>, FieldError> {
    for owner in list(pod, "metadata.ownerReferences")? {
        if boolean(owner, "controller")?.unwrap_or_default() {
            return Ok(Some(text(owner, "uid")?).filter(|uid| !uid.is_empty()));
        }
    }
    Ok(None)
}
