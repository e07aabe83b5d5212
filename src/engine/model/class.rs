//! Task classes: what plugins see of a task. Tasks that differ only in name are one class.

use std::sync::Arc;

use super::amounts::{ResourceAmounts, ResourceId, ResourceTable};
use super::records::{TaskRecord, TextMap, find_text};
use super::resource_name::ResourceKind;

/// Amounts below this count as not requested, and differences below it as equal, in Volcano's units.
pub const MIN_AMOUNT: f64 = 0.1;

/// One resource that a task requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedAmount {
    /// Its id; one that no node can have if the cluster state does not know the name.
    pub id: ResourceId,
    /// Its name.
    pub name: Arc<str>,
    /// How much, in the resource's unit; at least [`MIN_AMOUNT`].
    pub amount: f64,
    /// What `NodeResourcesFitPlus` adds to a node for it: thousandths of cpu, whole units of anything else.
    pub counted: i64,
}

/// What plugins see of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskClass {
    /// What it requests, the pod itself included, in the order that all sums run in: cpu, memory, then by name.
    pub requested: Vec<RequestedAmount>,
    /// Annotations that plugins declare.
    pub annotations: TextMap,
    /// Only if a plugin that is asked declares that it reads it.
    pub charge: Option<ChargedAccount>,
}

/// Whom a task is charged to, and what for.
#[derive(Clone, Debug, PartialEq)]
pub struct ChargedAccount {
    /// Queue of its job; empty: it has none that is there.
    pub queue: Arc<str>,
    /// Its job, if plugins that are asked read what that holds; else empty.
    pub job: Arc<str>,
    /// The card that a placement which is judged names; empty: none, or its job is not read either.
    pub card: Arc<str>,
    /// All that it requests.
    pub requests: ResourceAmounts,
    /// Its limits.
    pub limits: Option<Box<ResourceAmounts>>,
}

impl TaskClass {
    /// The class of a task, whose resources are named by `resources`.
    pub fn of(task: &TaskRecord, resources: &ResourceTable) -> Self {
        let mut requested: Vec<RequestedAmount> = task
            .requests
            .iter()
            .map(|(id, amount)| (id, amount as f64))
            .filter(|&(_, amount)| amount >= MIN_AMOUNT)
            .filter_map(|(id, amount)| {
                Some(RequestedAmount {
                    id,
                    name: Arc::clone(resources.shared_name(id)?),
                    amount,
                    counted: task.counted_request(id),
                })
            })
            .collect();
        requested.sort_by(|a, b| sum_order(a).cmp(&sum_order(b)));
        Self {
            requested,
            annotations: Arc::clone(&task.annotations),
            charge: None,
        }
    }

    /// The same for plugins that read what a task is charged for. `job`: they read what its job holds, too.
    #[must_use]
    pub fn charged(self, task: &TaskRecord, queue: Arc<str>, job: Arc<str>) -> Self {
        let charge = ChargedAccount {
            queue,
            card: Arc::clone(if job.is_empty() { &job } else { &task.card }),
            job,
            requests: task.requests.clone(),
            limits: task.limits.clone(),
        };
        Self {
            charge: Some(charge),
            ..self
        }
    }

    /// What Volcano counts of its requests: object quotas (`count/pods`) are none of a node's resources there.
    pub fn counted_by_volcano(&self) -> impl Iterator<Item = &RequestedAmount> {
        let counts = |requested: &&RequestedAmount| ResourceKind::of(&requested.name).counted_by_volcano();
        self.requested.iter().filter(counts)
    }

    /// How much it requests of a resource, 0 if nothing.
    pub fn amount(&self, id: ResourceId) -> f64 {
        self.requested
            .iter()
            .find(|requested| requested.id == id)
            .map_or(0.0, |requested| requested.amount)
    }

    /// The text of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        find_text(&self.annotations, name)
    }
}

fn sum_order(requested: &RequestedAmount) -> (u8, &str) {
    match requested.id {
        ResourceId::CPU => (0, ""),
        ResourceId::MEMORY => (1, ""),
        _ => (2, &requested.name),
    }
}
