//! Amounts of nodes as the reference keeps them.

use std::collections::BTreeSet;

use crate::model::{NodeEntry, ResourceId, ResourceVector, TaskRecord, TaskStatus};

/// Key by which tasks of a node come one after the other.
pub(super) fn arrival_order(task: &TaskRecord) -> (&str, &str, bool, &str) {
    let (namespace, job) = task.job.split_once('/').unwrap_or(("", &task.job));
    (job, namespace, task.status == TaskStatus::Binding, &task.name)
}

/// Amounts of a node that its tasks may take.
pub(super) fn idle_without_tasks(node: &NodeEntry) -> ResourceVector {
    let mut idle = ResourceVector::from(&node.record.allocatable);
    if let Some(more) = &node.record.oversubscription {
        idle.add(&ResourceVector::from(more));
    }
    if let Some(used) = &node.record.unattributed_used {
        idle.subtract(&ResourceVector::from(used));
    }
    idle
}

/// True if a node has a resource other than cpu and memory, whether or not there is any of it.
pub(super) fn has_scalars(node: &NodeEntry) -> bool {
    let given = [Some(&node.record.allocatable), node.record.oversubscription.as_ref()];
    let mut ids = given
        .into_iter()
        .flatten()
        .flat_map(|amounts| amounts.iter().map(|(id, _)| id));
    ids.any(|id| id > ResourceId::MEMORY)
}

/// Resources of a node, each once.
pub(super) fn resources_of(entry: &NodeEntry) -> BTreeSet<ResourceId> {
    entry.resources().collect()
}
