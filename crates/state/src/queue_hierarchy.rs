//! Places of queues in the hierarchy and their card quotas: checks of new queues, and of existing queues when a policy is
//! put in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, BatchKind, BatchRecord, RejectedRecord};
use pumice_engine::PolicyInForce;
use pumice_engine::model::{ClusterState, Problem, QueueRecord, RecordKind};
use pumice_engine::plugins::{capacity_card, drf};
use pumice_engine::policy::Policy;

/// Queues to check again once a batch is applied.
#[derive(Debug)]
pub(super) struct QueueRecheck {
    /// Field of each queue that the batch puts.
    fields: BTreeMap<Arc<str>, String>,
    is_needed: bool,
}

/// Checks the queues of a batch one by one. If a policy in force needs their places, queues with problems are rejected
/// and their last good records stay. Otherwise they are accepted with a warning, because such a policy may come. An
/// unreadable card quota is rejected likewise, if there is a last good one; otherwise it counts as empty, with a warning.
pub(super) fn judge_queues(
    batch: &mut Batch,
    cluster_state: &ClusterState,
    policies: &BTreeMap<Arc<str>, Arc<PolicyInForce>>,
) -> QueueRecheck {
    let is_checked = policies.values().any(|policy| drf::checks_hierarchy(&policy.policy));
    let checks_quotas = policies
        .values()
        .any(|policy| capacity_card::checks_quotas(&policy.policy));
    let is_snapshot = batch.kind == BatchKind::FullSyncLast;
    let removes =
        |(kind, name): &(RecordKind, Arc<str>)| *kind == RecordKind::Queue && cluster_state.queues().contains(name);
    let mut watch = QueueRecheck {
        fields: BTreeMap::new(),
        is_needed: is_snapshot || batch.remove.iter().any(removes),
    };
    let (rejections, warnings) = (&mut batch.rejected, &mut batch.warnings);
    batch.put.retain(|(record, place)| {
        let BatchRecord::Queue(queue) = record else { return true };
        let before = cluster_state.queues().get(&queue.name).map(|stored| &stored.record);
        if let Some(problem) = capacity_card::queue_quota_problem(queue) {
            let problem = at_record(problem, &queue.name, &place.field_path(RecordKind::Queue));
            let is_good = |before: &&QueueRecord| capacity_card::queue_quota_problem(before).is_none();
            if checks_quotas && before.as_ref().is_some_and(is_good) {
                let name = Arc::clone(&queue.name);
                rejections.push(RejectedRecord::new(RecordKind::Queue, name, vec![problem]));
                return false;
            }
            warnings.push(problem);
        }
        if let Some(problem) = drf::queue_hierarchy_problem(queue) {
            let problem = at_record(problem, &queue.name, &place.field_path(RecordKind::Queue));
            if is_checked {
                let name = Arc::clone(&queue.name);
                rejections.push(RejectedRecord::new(RecordKind::Queue, name, vec![problem]));
                return false;
            }
            warnings.push(problem);
        } else {
            watch
                .fields
                .insert(Arc::clone(&queue.name), place.field_path(RecordKind::Queue));
        }
        watch.is_needed |= before.is_none_or(|before| changes_place(before, queue));
        true
    });
    watch
}

/// True if the new record may have another place in the hierarchy.
fn changes_place(before: &QueueRecord, after: &QueueRecord) -> bool {
    (&before.annotations, before.creation_time) != (&after.annotations, after.creation_time)
}

/// Problems of queues whose places contradict each other once the batch is applied. Both queues of a contradiction are
/// accepted, because the one created first decides which is wrong; orders leave the later one out.
pub(super) fn hierarchy_problems(watch: &QueueRecheck, cluster_state: &ClusterState) -> Vec<Problem> {
    if !watch.is_needed {
        return Vec::new();
    }
    let by_itself = |name: &Arc<str>| {
        let stored = cluster_state.queues().get(name);
        stored.is_some_and(|stored| drf::queue_hierarchy_problem(&stored.record).is_some())
    };
    let problems = drf::hierarchy_problems(cluster_state)
        .into_iter()
        .filter(|(name, _)| !by_itself(name));
    let of_record = |(name, problem): (Arc<str>, Problem)| match watch.fields.get(&name) {
        Some(field) => at_record(problem, &name, field),
        None => problem,
    };
    problems.map(of_record).collect()
}

/// Problems that a policy finds in the existing queues.
pub(super) fn policy_problems(policy: &Policy, cluster_state: &ClusterState) -> Vec<Problem> {
    let mut problems = Vec::new();
    if drf::checks_hierarchy(policy) {
        let found = drf::hierarchy_problems(cluster_state).into_iter();
        problems.extend(found.map(|(_, problem)| problem));
    }
    if capacity_card::checks_quotas(policy) {
        let queues = cluster_state.queues().iter();
        problems.extend(queues.filter_map(|(_, stored)| capacity_card::queue_quota_problem(&stored.record)));
    }
    problems
}

/// Problem of a queue, located at the record that the batch put.
fn at_record(problem: Problem, name: &str, field: &str) -> Problem {
    let annotation = problem
        .field
        .strip_prefix(&format!("queues[{name}]"))
        .unwrap_or_default();
    Problem {
        field: format!("{field}{annotation}"),
        ..problem
    }
}
