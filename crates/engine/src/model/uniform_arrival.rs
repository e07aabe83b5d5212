//! Uniform arrivals: equal tasks that are added to a node's columns alone, not to its entry.

use smallvec::SmallVec;

use super::amounts::{ResourceId, THOUSAND};
use super::chunk::NodeChunk;
use super::column::NodeVector;
use super::integer_column::{DENSE_INTEGER_LIMIT, WholeVector, integer_of_float, integer_override};
use super::pod_sum_delta::PodSumDelta;
use super::records::{TaskRecord, TaskStatus};

/// Amounts that each of many equal tasks adds to its node.
#[derive(Clone, Debug)]
pub(crate) struct UniformArrival {
    vector: NodeVector,
    /// Amounts added to that vector.
    amounts: Vec<(ResourceId, i64)>,
    /// Integers added to the used amount in Kubernetes' counting.
    integers: Vec<(ResourceId, i64)>,
    /// True if Kubernetes uses the same amounts.
    pub(super) same_in_kubernetes: bool,
    /// Differences of the sums over pods, which no column shows.
    pub(super) pod_sums: PodSumDelta,
    /// True if the tasks take ports, which no column shows.
    takes_ports: bool,
}

impl UniformArrival {
    /// Amounts of a task in the status that it will have on the node.
    pub(crate) fn of(task: &TaskRecord) -> Self {
        let amounts: Vec<(ResourceId, i64)> = task.requests.iter().collect();
        let takes_ports = !task.host_ports().is_empty();
        if task.status == TaskStatus::Pipelined {
            return Self {
                vector: NodeVector::Pipelined,
                amounts,
                integers: Vec::new(),
                same_in_kubernetes: true,
                pod_sums: PodSumDelta::of_task(task),
                takes_ports,
            };
        }
        let nonzero = [ResourceId::CPU, ResourceId::MEMORY].map(|id| (id, task.nonzero_request(id)));
        let others = amounts.iter().filter(|(id, _)| *id > ResourceId::MEMORY);
        let others = others.map(|(id, _)| (*id, task.requests.whole_units(*id).unwrap_or(0)));
        let integers: Vec<(ResourceId, i64)> = nonzero.into_iter().chain(others).collect();
        let alike = integers.iter().all(|&(id, whole)| {
            let unit = if id.has_kubernetes_unit() { 1 } else { THOUSAND };
            whole.checked_mul(unit) == Some(task.requests.get(id).unwrap_or(0))
        });
        Self {
            vector: NodeVector::Used,
            amounts,
            integers,
            same_in_kubernetes: alike,
            pod_sums: PodSumDelta::of_task(task),
            takes_ports,
        }
    }

    /// Resources whose amount on the node changes, each once.
    pub(crate) fn resources(&self) -> Vec<ResourceId> {
        let mut ids: Vec<ResourceId> = self.amounts.iter().chain(&self.integers).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// True if the columns show all that plugins read of a node's usage after such tasks.
    pub(crate) fn is_shown_by_columns(&self) -> bool {
        self.pod_sums.is_empty() && !self.takes_ports
    }

    /// Amount that a task adds to a resource of a vector.
    pub(super) fn added(&self, id: ResourceId, vector: NodeVector) -> Option<i64> {
        let own = self.amounts.iter().filter(|_| vector == self.vector);
        own.filter(|(own, _)| *own == id).map(|(_, amount)| *amount).next()
    }

    /// Integer that a task adds to the used amount in Kubernetes' counting.
    pub(super) fn integer(&self, id: ResourceId) -> i64 {
        let own = self.integers.iter().find(|(own, _)| *own == id);
        own.map_or(0, |(_, whole)| *whole)
    }
}

/// Sum after `times` tasks, if floats show it exactly.
pub(super) fn dense_sum(before: f64, added: i64, times: u32) -> Option<f64> {
    let more = added as f64 * f64::from(times);
    let after = before + more;
    let dense =
        before.abs() < DENSE_INTEGER_LIMIT && more.abs() < DENSE_INTEGER_LIMIT && after.abs() < DENSE_INTEGER_LIMIT;
    dense.then_some(after)
}

impl NodeChunk {
    /// Adds `times` tasks to a node's columns, and not to its entry. False: floats do not show the sum exactly, and
    /// nothing changes.
    pub(crate) fn add_uniform(&mut self, offset: usize, arrival: &UniformArrival, times: u32) -> bool {
        let vector = arrival.vector;
        let value = |chunk: &Self, id| chunk.value(id, vector, offset);
        let sums = arrival.amounts.iter();
        let sums = sums.map(|&(id, added)| Some((id, dense_sum(value(self, id).unwrap_or(0.0), added, times)?)));
        let Some(sums) = sums.collect::<Option<SmallVec<[(ResourceId, f64); 8]>>>() else {
            return false;
        };
        let integers = arrival.integers.iter().filter_map(|&(id, added)| {
            let held = self
                .exact_integers(id, WholeVector::Requested)
                .and_then(|exact| exact.get(offset));
            if arrival.same_in_kubernetes && held.is_none() {
                return None;
            }
            let before = self.integer(id, WholeVector::Requested, offset);
            Some((id, before + i128::from(added) * i128::from(times)))
        });
        let integers: SmallVec<[(ResourceId, i128); 8]> = integers.collect();
        for (id, sum) in sums {
            self.set_value(id, vector, offset, Some(sum));
        }
        for (id, whole) in integers {
            let stored = integer_override(id, value(self, id), whole);
            self.set_integer(id, WholeVector::Requested, offset, stored);
        }
        true
    }

    /// Amount of a vector in Kubernetes' integers.
    pub(super) fn integer(&self, id: ResourceId, whole: WholeVector, offset: usize) -> i128 {
        let held = self.exact_integers(id, whole).and_then(|exact| exact.get(offset));
        held.unwrap_or_else(|| {
            let shown = self.value(id, whole.shown(), offset).unwrap_or(0.0);
            integer_of_float(id, shown).into()
        })
    }
}
