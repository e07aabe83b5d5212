//! Queues that are taken in, or stand there when a policy is put in force, judged by their places in the hierarchy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, BatchKind, Put};
use crate::engine::PolicyInForce;
use crate::engine::model::{Kind, Problem, QueueRecord, View};
use crate::engine::plugins::drf;
use crate::engine::policy::Policy;

/// What to look at again once a batch is applied.
#[derive(Debug)]
pub(super) struct Watch {
    /// Field of each queue that the batch puts.
    fields: BTreeMap<Arc<str>, String>,
    is_needed: bool,
}

/// Judges the queues of a batch one by one. If a policy in force needs their places, faulty ones are refused, and the last
/// good records stay; else they are taken with a warning, for such a policy may come.
pub(super) fn judge(batch: &mut Batch, view: &View, policies: &BTreeMap<Arc<str>, Arc<PolicyInForce>>) -> Watch {
    let is_checked = policies.values().any(|policy| drf::checks_places(&policy.policy));
    let is_snapshot = batch.kind == BatchKind::SnapshotLast;
    let removes = |(kind, name): &(Kind, Arc<str>)| *kind == Kind::Queue && view.queues().contains(name);
    let mut watch = Watch {
        fields: BTreeMap::new(),
        is_needed: is_snapshot || batch.remove.iter().any(removes),
    };
    let (refusals, warnings) = (&mut batch.refused, &mut batch.warnings);
    batch.put.retain(|(record, place)| {
        let Put::Queue(queue) = record else { return true };
        if let Some(fault) = drf::fault_of(queue) {
            let fault = placed(fault, &queue.name, &place.field(Kind::Queue));
            if is_checked {
                refusals.push((Kind::Queue, Arc::clone(&queue.name), vec![fault]));
                return false;
            }
            warnings.push(fault);
        } else {
            watch.fields.insert(Arc::clone(&queue.name), place.field(Kind::Queue));
        }
        let before = view.queues().get(&queue.name).map(|stored| &stored.record);
        watch.is_needed |= before.is_none_or(|before| moves(before, queue));
        true
    });
    watch
}

/// True if a queue may stand somewhere else now.
fn moves(before: &QueueRecord, after: &QueueRecord) -> bool {
    (&before.annotations, before.creation_time) != (&after.annotations, after.creation_time)
}

/// Queues whose places contradict each other once the batch is applied. Which of two is to blame hangs on the one that was
/// created first, so both are taken, and orders leave the later one out.
pub(super) fn contradictions(watch: &Watch, view: &View) -> Vec<Problem> {
    if !watch.is_needed {
        return Vec::new();
    }
    let by_itself = |name: &Arc<str>| {
        let stored = view.queues().get(name);
        stored.is_some_and(|stored| drf::fault_of(&stored.record).is_some())
    };
    let faults = drf::faults(view).into_iter().filter(|(name, _)| !by_itself(name));
    let of_record = |(name, fault): (Arc<str>, Problem)| match watch.fields.get(&name) {
        Some(field) => placed(fault, &name, field),
        None => fault,
    };
    faults.map(of_record).collect()
}

/// What a policy will find wrong with the queues that stand there.
pub(super) fn under(policy: &Policy, view: &View) -> Vec<Problem> {
    if !drf::checks_places(policy) {
        return Vec::new();
    }
    drf::faults(view).into_iter().map(|(_, fault)| fault).collect()
}

/// The fault of a queue, said of the record that came with it.
fn placed(fault: Problem, name: &str, field: &str) -> Problem {
    let annotation = fault.field.strip_prefix(&format!("queues[{name}]")).unwrap_or_default();
    Problem {
        field: format!("{field}{annotation}"),
        ..fault
    }
}
