//! Rules of plugins about queues: checks of new queues, and of existing queues when a policy is activated.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, BatchKind, BatchRecord, RejectedRecord};
use pumice_engine::PolicyInForce;
use pumice_engine::model::{ClusterState, Problem, QueueRecord, RecordKind};
use pumice_engine::plugin::RecordRules;
use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::{Compatibility, Policy};

/// Queues to check again once a batch is applied.
#[derive(Debug)]
pub(crate) struct QueueRecheck {
    /// Field of each queue that the batch puts.
    fields: BTreeMap<Arc<str>, String>,
    is_needed: bool,
}

fn all_rules() -> impl Iterator<Item = &'static dyn RecordRules> {
    REGISTRY.iter().filter_map(|def| def.record_rules)
}

/// Checks the queues of a batch one by one. A queue that breaks rules of an active policy is rejected, and its last
/// good record stays. A queue that breaks other rules is accepted with a warning, and so is a queue without a good
/// record, if the rules permit it.
pub(crate) fn judge_queues(
    batch: &mut Batch,
    cluster_state: &ClusterState,
    policies: &BTreeMap<Arc<str>, Arc<PolicyInForce>>,
) -> QueueRecheck {
    let is_needed = |rules: &dyn RecordRules| policies.values().any(|policy| rules.apply_to(&policy.policy));
    let rules: Vec<(&dyn RecordRules, bool)> = all_rules().map(|rules| (rules, is_needed(rules))).collect();
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
        let field = place.field_path(RecordKind::Queue);
        for (rules, needed) in &rules {
            let Some(problem) = rules.queue_problem(queue) else {
                continue;
            };
            let problem = at_record(problem, &queue.name, &field);
            let is_good = |before: &QueueRecord| rules.queue_problem(before).is_none();
            if *needed && (rules.reject_new_queues() || before.is_some_and(is_good)) {
                let name = Arc::clone(&queue.name);
                rejections.push(RejectedRecord::new(RecordKind::Queue, name, vec![problem]));
                return false;
            }
            warnings.push(problem);
        }
        watch.fields.insert(Arc::clone(&queue.name), field);
        let may_contradict = |before: &QueueRecord| {
            let mut rules = rules.iter();
            rules.any(|(rules, _)| rules.change_may_contradict(before, queue))
        };
        watch.is_needed |= before.is_none_or(may_contradict);
        true
    });
    watch
}

/// Problems of queues that contradict each other once the batch is applied. Both queues of a contradiction are accepted,
/// because the one created first decides which is wrong; orders leave the later one out.
pub(crate) fn contradictions(watch: &QueueRecheck, cluster_state: &ClusterState) -> Vec<Problem> {
    if !watch.is_needed {
        return Vec::new();
    }
    let of_record = |(name, problem): (Arc<str>, Problem)| match watch.fields.get(&name) {
        Some(field) => at_record(problem, &name, field),
        None => problem,
    };
    let problems = all_rules().flat_map(|rules| rules.contradictions(cluster_state));
    problems.map(of_record).collect()
}

/// Problems that a policy finds in the existing queues and jobs, by name of the record.
pub(crate) fn policy_problems(policy: &Policy, cluster_state: &ClusterState) -> Vec<Problem> {
    let rules = all_rules().filter(|rules| rules.apply_to(policy));
    let mut problems: Vec<_> = rules.flat_map(|rules| rules.queue_problems(cluster_state)).collect();
    if policy.compatibility() == Compatibility::Corrected {
        problems.extend(negative_problems(cluster_state));
    }
    problems.sort_by(|(one, _), (other, _)| one.cmp(other));
    problems.into_iter().map(|(_, problem)| problem).collect()
}

/// Problems of negative amounts that records were taken with under `upstream`, by name of the record.
fn negative_problems(cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
    let names = cluster_state.resources();
    let queues = cluster_state.queues().iter();
    let queues = queues.filter_map(|(name, stored)| Some((Arc::clone(name), stored.record.negative_problem(names)?)));
    let jobs = cluster_state.jobs().iter();
    let jobs = jobs.filter_map(|(name, stored)| Some((Arc::clone(name), stored.record.negative_problem(names)?)));
    queues.chain(jobs).collect()
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
