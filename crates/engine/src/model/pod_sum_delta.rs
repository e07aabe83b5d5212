//! Differences of a node's sums over pods from what its columns show.

use super::amount_delta::AmountDelta;
use super::amounts::{ResourceId, THOUSAND};
use super::mask::CHUNK_SIZE;
use super::records::{TaskRecord, TaskStatus};
use crate::held_bytes::held_bytes;

/// Sum over the pods of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSum {
    /// Non-zero requests of cpu and memory.
    NonzeroRequests,
    /// Requests by the rules of kube-scheduler.
    Requests,
}

/// Differences of a node's sums over pods from what its columns show, in the engine's units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSumDelta(Option<Box<PodSumDeltas>>);

held_bytes! { PodSumDelta { 0 } }

#[derive(Clone, Debug, Default, PartialEq)]
struct PodSumDeltas {
    nonzero: AmountDelta,
    requests: AmountDelta,
}

held_bytes! { PodSumDeltas { nonzero, requests } }

impl TaskRecord {
    /// Request of a resource by the rules of kube-scheduler: thousandths of cpu, whole units of other resources.
    pub fn kubernetes_request(&self, id: ResourceId) -> i64 {
        let counted = self.kubernetes_requests.as_deref().unwrap_or(&self.requests);
        counted.whole_units(id).unwrap_or(0)
    }
}

impl PodSumDelta {
    /// Differences that a task makes on the node that it is on.
    pub(crate) fn of_task(task: &TaskRecord) -> Self {
        let mut own = Self::default();
        own.count_task(task, true);
        own
    }

    /// Takes off all that the columns show of an evicted task that still terminates, or puts it back.
    pub(crate) fn take_off(&mut self, task: &TaskRecord, takes: bool) {
        let times = if takes { -1 } else { 1 };
        for (id, shown, _) in requested(task, false) {
            self.add_requests(id, times * shown);
        }
        for id in [ResourceId::CPU, ResourceId::MEMORY] {
            self.add_nonzero(id, times * i128::from(task.nonzero_request(id)));
        }
    }

    /// Adds a task, or removes one that was added with this status.
    pub(crate) fn count_task(&mut self, task: &TaskRecord, adds: bool) {
        let times = if adds { 1 } else { -1 };
        let pipelined = task.status == TaskStatus::Pipelined;
        if !pipelined && (!task.status.is_used() || task.kubernetes_requests.is_none()) {
            return;
        }
        for (id, shown, counted) in requested(task, pipelined) {
            self.add_requests(id, times * (counted - shown));
        }
        if pipelined {
            for id in [ResourceId::CPU, ResourceId::MEMORY] {
                let shown = task.requests.get(id).unwrap_or(0);
                let more = i128::from(task.nonzero_request(id)) - i128::from(shown);
                self.add_nonzero(id, times * more);
            }
        }
    }

    fn add_requests(&mut self, id: ResourceId, more: i128) {
        if more != 0 {
            self.0.get_or_insert_default().requests.add(id, more);
            self.drop_empty();
        }
    }

    fn add_nonzero(&mut self, id: ResourceId, more: i128) {
        if more != 0 {
            self.0.get_or_insert_default().nonzero.add(id, more);
            self.drop_empty();
        }
    }

    fn drop_empty(&mut self) {
        let is_empty = |own: &PodSumDeltas| own.nonzero.is_empty() && own.requests.is_empty();
        if self.0.as_deref().is_some_and(is_empty) {
            self.0 = None;
        }
    }

    /// True if the columns show the sums.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Difference of one sum, in thousandths of cpu and whole units of anything else.
    pub(super) fn get(&self, id: ResourceId, sum: PodSum) -> i128 {
        let Some(own) = self.0.as_deref() else { return 0 };
        let exact = match sum {
            PodSum::NonzeroRequests => own.nonzero.get(id),
            PodSum::Requests => own.requests.get(id),
        };
        if id.has_kubernetes_unit() {
            exact
        } else {
            exact / i128::from(THOUSAND)
        }
    }
}

/// Resources of a task, each with the amount in the columns and the amount of kube-scheduler. Columns have used scalars
/// in whole units of each task, and pipelined scalars as a sum of thousandths.
fn requested(task: &TaskRecord, pipelined: bool) -> impl Iterator<Item = (ResourceId, i128, i128)> + '_ {
    let counted = task.kubernetes_requests.as_deref();
    let ids = task.requests.iter().map(|(id, _)| id);
    let others = counted.into_iter().flat_map(|own| own.iter().map(|(id, _)| id));
    let others = others.filter(|id| task.requests.get(*id).is_none());
    ids.chain(others).filter(|id| *id != ResourceId::PODS).map(move |id| {
        let unit = if id.has_kubernetes_unit() {
            1
        } else {
            i128::from(THOUSAND)
        };
        let shown = if pipelined {
            i128::from(task.requests.get(id).unwrap_or(0))
        } else {
            i128::from(task.requests.whole_units(id).unwrap_or(0)) * unit
        };
        (id, shown, i128::from(task.kubernetes_request(id)) * unit)
    })
}

/// Tasks that hypothetical nodes have more, and the differences that each of them makes.
#[derive(Clone, Debug)]
pub(super) struct AddedPodSums {
    pub(super) delta: PodSumDelta,
    pub(super) added_tasks: [u32; CHUNK_SIZE],
}
