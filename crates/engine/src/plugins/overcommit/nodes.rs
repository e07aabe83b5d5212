//! Amounts of nodes as the reference keeps them.

use std::collections::BTreeMap;

use super::super::queue_accounts::IntegerAmounts;
use crate::model::{ClusterState, NodeEntry, ResourceId, ResourceVector, SortedTable, TaskRecord, TaskStatus};

/// Key by which tasks of a node come one after the other.
fn arrival_order(task: &TaskRecord) -> (&str, &str, bool, &str) {
    let (namespace, job) = task.job.split_once('/').unwrap_or(("", &task.job));
    (job, namespace, task.status == TaskStatus::Binding, &task.name)
}

/// Amounts of a node that its tasks may take.
fn idle_without_tasks(node: &NodeEntry) -> ResourceVector {
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

/// Requests of the tasks in Binding, by name, for which their nodes have no room. The reference decides in the order in which jobs reach
/// it, each with its tasks in Binding last; here jobs come by name.
pub(super) fn requests_without_room(cluster_state: &ClusterState, binding: &SortedTable<()>) -> IntegerAmounts {
    let mut without_room = IntegerAmounts::default();
    let mut idle_by_node: BTreeMap<&str, ResourceVector> = BTreeMap::new();
    for (name, ()) in binding.iter() {
        let task = cluster_state.tasks().get(name).map(|stored| &stored.record);
        let node = task.and_then(|task| cluster_state.node_by_name(&task.node));
        if let Some(node) = node {
            idle_by_node.insert(&node.record.name, idle_without_tasks(node));
        }
    }
    if idle_by_node.is_empty() {
        return without_room;
    }
    let all = cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
    let mut tasks: Vec<&TaskRecord> = all
        .filter(|task| task.status.is_used() && idle_by_node.contains_key(&*task.node))
        .collect();
    tasks.sort_by_key(|task| arrival_order(task));
    for task in tasks {
        let Some(idle) = idle_by_node.get_mut(&*task.node) else {
            continue;
        };
        let requests = ResourceVector::from(&task.requests);
        if task.status != TaskStatus::Binding || requests.is_at_most(idle) {
            idle.subtract(&requests);
        } else {
            without_room.add_record(&task.requests, 1);
        }
    }
    without_room
}
