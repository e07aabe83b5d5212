//! What equal tasks add to a node, counted in its chunk's columns alone.

use smallvec::SmallVec;

use super::amounts::{ResourceId, THOUSAND};
use super::chunk::NodeChunk;
use super::column::NodeVector;
use super::integer_column::{DENSE_INTEGER_LIMIT, WholeVector, integer_of_float, integer_override};
use super::records::{TaskRecord, TaskStatus};

/// What each of many equal tasks adds to the node that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct UniformArrival {
    vector: NodeVector,
    /// In that vector.
    amounts: Vec<(ResourceId, i64)>,
    /// To what is used as Kubernetes counts.
    integers: Vec<(ResourceId, i64)>,
    /// Kubernetes counts just the same.
    pub(super) same_in_kubernetes: bool,
}

impl UniformArrival {
    /// Of a task in the status that it will have there.
    pub(crate) fn of(task: &TaskRecord) -> Self {
        let amounts: Vec<(ResourceId, i64)> = task.requests.iter().collect();
        if task.status == TaskStatus::Pipelined {
            return Self {
                vector: NodeVector::Pipelined,
                amounts,
                integers: Vec::new(),
                same_in_kubernetes: true,
            };
        }
        let nonzero = [ResourceId::CPU, ResourceId::MEMORY].map(|id| (id, task.nonzero_request(id)));
        let others = amounts.iter().filter(|(id, _)| *id > ResourceId::MEMORY);
        let others = others.map(|(id, _)| (*id, task.requests.whole_units(*id).unwrap_or(0)));
        let wholes: Vec<(ResourceId, i64)> = nonzero.into_iter().chain(others).collect();
        let alike = wholes.iter().all(|&(id, whole)| {
            let unit = if id.has_kubernetes_unit() { 1 } else { THOUSAND };
            whole.checked_mul(unit) == Some(task.requests.get(id).unwrap_or(0))
        });
        Self {
            vector: NodeVector::Used,
            amounts,
            integers: wholes,
            same_in_kubernetes: alike,
        }
    }

    /// Resources of which a node then has another amount, once each.
    pub(crate) fn resources(&self) -> Vec<ResourceId> {
        let mut ids: Vec<ResourceId> = self.amounts.iter().chain(&self.integers).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What a task adds to an amount of a vector.
    pub(super) fn added(&self, id: ResourceId, vector: NodeVector) -> Option<i64> {
        let own = self.amounts.iter().filter(|_| vector == self.vector);
        own.filter(|(own, _)| *own == id).map(|(_, amount)| *amount).next()
    }

    /// What a task adds to what is used, as Kubernetes counts it.
    pub(super) fn integer(&self, id: ResourceId) -> i64 {
        let own = self.integers.iter().find(|(own, _)| *own == id);
        own.map_or(0, |(_, whole)| *whole)
    }
}

/// What tasks make of an amount, if floats tell all of it.
pub(super) fn dense_sum(before: f64, added: i64, times: u32) -> Option<f64> {
    let more = added as f64 * f64::from(times);
    let after = before + more;
    let dense =
        before.abs() < DENSE_INTEGER_LIMIT && more.abs() < DENSE_INTEGER_LIMIT && after.abs() < DENSE_INTEGER_LIMIT;
    dense.then_some(after)
}

impl NodeChunk {
    /// Counts so many tasks in a node's columns, and not in its entry. False: floats do not tell all of it, and nothing is
    /// done.
    pub(crate) fn add_uniform(&mut self, offset: usize, joining: &UniformArrival, times: u32) -> bool {
        let vector = joining.vector;
        let value = |chunk: &Self, id| chunk.value(id, vector, offset);
        let sums = joining.amounts.iter();
        let sums = sums.map(|&(id, added)| Some((id, dense_sum(value(self, id).unwrap_or(0.0), added, times)?)));
        let Some(sums) = sums.collect::<Option<SmallVec<[(ResourceId, f64); 8]>>>() else {
            return false;
        };
        let wholes = joining.integers.iter().filter_map(|&(id, added)| {
            let held = self
                .exact_integers(id, WholeVector::Requested)
                .and_then(|exact| exact.get(offset));
            if joining.same_in_kubernetes && held.is_none() {
                return None;
            }
            let before = self.integer(id, WholeVector::Requested, offset);
            Some((id, before + i128::from(added) * i128::from(times)))
        });
        let wholes: SmallVec<[(ResourceId, i128); 8]> = wholes.collect();
        for (id, sum) in sums {
            self.set_value(id, vector, offset, Some(sum));
        }
        for (id, whole) in wholes {
            let told = integer_override(id, value(self, id), whole);
            self.set_integer(id, WholeVector::Requested, offset, told);
        }
        true
    }

    /// An amount as Kubernetes counts it.
    pub(super) fn integer(&self, id: ResourceId, whole: WholeVector, offset: usize) -> i128 {
        let vector = match whole {
            WholeVector::Allocatable => NodeVector::Allocatable,
            WholeVector::Requested => NodeVector::Used,
        };
        let held = self.exact_integers(id, whole).and_then(|exact| exact.get(offset));
        held.unwrap_or_else(|| i128::from(integer_of_float(id, self.value(id, vector, offset).unwrap_or(0.0))))
    }
}
