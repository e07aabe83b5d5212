//! What equal tasks add to a node, counted in its chunk's columns alone.

use smallvec::SmallVec;

use super::amounts::{ResourceId, THOUSAND};
use super::chunk::Chunk;
use super::column::Vector;
use super::records::{TaskRecord, TaskStatus};
use super::whole::{DENSE, Whole, beside, read_off};

/// What each of many equal tasks adds to the node that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    vector: Vector,
    /// In that vector.
    amounts: Vec<(ResourceId, i64)>,
    /// To what is used as Kubernetes counts.
    wholes: Vec<(ResourceId, i64)>,
    /// Kubernetes counts just the same.
    pub(super) alike: bool,
}

impl Joining {
    /// Of a task in the status that it will have there.
    pub(crate) fn of(task: &TaskRecord) -> Self {
        let amounts: Vec<(ResourceId, i64)> = task.requests.iter().collect();
        if task.status == TaskStatus::Pipelined {
            return Self {
                vector: Vector::Pipelined,
                amounts,
                wholes: Vec::new(),
                alike: true,
            };
        }
        let nonzero = [ResourceId::CPU, ResourceId::MEMORY].map(|id| (id, task.nonzero(id)));
        let others = amounts.iter().filter(|(id, _)| *id > ResourceId::MEMORY);
        let others = others.map(|(id, _)| (*id, task.requests.whole(*id).unwrap_or(0)));
        let wholes: Vec<(ResourceId, i64)> = nonzero.into_iter().chain(others).collect();
        let alike = wholes.iter().all(|&(id, whole)| {
            let unit = if id.counts_alike() { 1 } else { THOUSAND };
            whole.checked_mul(unit) == Some(task.requests.get(id).unwrap_or(0))
        });
        Self {
            vector: Vector::Used,
            amounts,
            wholes,
            alike,
        }
    }

    /// Resources of which a node then has another amount, once each.
    pub(crate) fn resources(&self) -> Vec<ResourceId> {
        let mut ids: Vec<ResourceId> = self.amounts.iter().chain(&self.wholes).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What a task adds to an amount of a vector.
    pub(super) fn added(&self, id: ResourceId, vector: Vector) -> Option<i64> {
        let own = self.amounts.iter().filter(|_| vector == self.vector);
        own.filter(|(own, _)| *own == id).map(|(_, amount)| *amount).next()
    }

    /// What a task adds to what is used, as Kubernetes counts it.
    pub(super) fn whole(&self, id: ResourceId) -> i64 {
        let own = self.wholes.iter().find(|(own, _)| *own == id);
        own.map_or(0, |(_, whole)| *whole)
    }
}

/// What tasks make of an amount, if floats tell all of it.
pub(super) fn sum(before: f64, added: i64, times: u32) -> Option<f64> {
    let more = added as f64 * f64::from(times);
    let after = before + more;
    let dense = before.abs() < DENSE && more.abs() < DENSE && after.abs() < DENSE;
    dense.then_some(after)
}

impl Chunk {
    /// Counts so many tasks in a node's columns, and not in its entry. False: floats do not tell all of it, and nothing is
    /// done.
    pub(crate) fn join(&mut self, offset: usize, joining: &Joining, times: u32) -> bool {
        let vector = joining.vector;
        let value = |chunk: &Self, id| chunk.value(id, vector, offset);
        let sums = joining.amounts.iter();
        let sums = sums.map(|&(id, added)| Some((id, sum(value(self, id).unwrap_or(0.0), added, times)?)));
        let Some(sums) = sums.collect::<Option<SmallVec<[(ResourceId, f64); 8]>>>() else {
            return false;
        };
        let wholes = joining.wholes.iter().filter_map(|&(id, added)| {
            let held = self.exact(id, Whole::Requested).and_then(|exact| exact.get(offset));
            if joining.alike && held.is_none() {
                return None;
            }
            let before = self.whole(id, Whole::Requested, offset);
            Some((id, before + i128::from(added) * i128::from(times)))
        });
        let wholes: SmallVec<[(ResourceId, i128); 8]> = wholes.collect();
        for (id, sum) in sums {
            self.set_value(id, vector, offset, Some(sum));
        }
        for (id, whole) in wholes {
            let told = beside(id, value(self, id), whole);
            self.set_whole(id, Whole::Requested, offset, told);
        }
        true
    }

    /// An amount as Kubernetes counts it.
    pub(super) fn whole(&self, id: ResourceId, whole: Whole, offset: usize) -> i128 {
        let vector = match whole {
            Whole::Allocatable => Vector::Allocatable,
            Whole::Requested => Vector::Used,
        };
        let held = self.exact(id, whole).and_then(|exact| exact.get(offset));
        held.unwrap_or_else(|| i128::from(read_off(id, self.value(id, vector, offset).unwrap_or(0.0))))
    }
}
