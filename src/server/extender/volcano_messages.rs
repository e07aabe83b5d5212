//! Messages of Volcano's extender plugin, as far as the server reads them: Go's structs of a scheduler's session, by their names.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::server::pb;

/// Task of the scheduler.
#[derive(Debug, Deserialize)]
pub(super) struct ExtenderTask {
    #[serde(rename = "UID", default)]
    uid: String,
    #[serde(rename = "Job", default)]
    job: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Namespace", default)]
    namespace: String,
    #[serde(rename = "NodeName", default)]
    pub(super) node: String,
    #[serde(rename = "Pod", default)]
    pod: Option<Box<RawValue>>,
}

impl ExtenderTask {
    /// Name of the task's record.
    pub(super) fn record_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The task as a task of a query, by the rules of Volcano.
    pub(super) fn task(&self) -> pb::Task {
        match &self.pod {
            Some(pod) => pb::Task {
                object: pod.get().as_bytes().to_vec(),
                pod_rules: pb::PodRules::Volcano.into(),
                job: self.job.clone(),
                ..pb::Task::default()
            },
            None => self.stored(),
        }
    }

    /// The task by its name.
    pub(super) fn stored(&self) -> pb::Task {
        pb::Task {
            name: self.record_name(),
            uid: self.uid.clone(),
            ..pb::Task::default()
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct VolcanoNode {
    #[serde(rename = "Name")]
    pub(super) name: String,
}

/// Job or queue; a job's uid is "namespace/name".
#[derive(Debug, Deserialize)]
pub(super) struct VolcanoNamed {
    #[serde(rename = "UID", default)]
    pub(super) uid: String,
    #[serde(rename = "Name", default)]
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PredicateMessage {
    pub(super) task: ExtenderTask,
    pub(super) node: VolcanoNode,
}

#[derive(Debug, Deserialize)]
pub(super) struct PrioritizeMessage {
    pub(super) task: ExtenderTask,
    pub(super) nodes: Vec<VolcanoNode>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VictimsMessage<'b> {
    pub(super) evictor: ExtenderTask,
    #[serde(borrow, default)]
    pub(super) evictees: Option<Vec<&'b RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct JobMessage {
    pub(super) job: VolcanoNamed,
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueMessage {
    pub(super) queue: VolcanoNamed,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventMessage {
    pub(super) task: ExtenderTask,
}

/// Answer about victims: 1 permits, 0 abstains, −1 rejects.
#[derive(Debug, Serialize)]
pub(super) struct VictimsResponse<'b> {
    pub(super) status: i32,
    pub(super) victims: Vec<&'b RawValue>,
}
