//! Difference between Kubernetes' and Volcano's counting of one record: whole units instead of thousandths, and
//! non-zero requests.

use super::amounts::{ResourceAmounts, ResourceId, THOUSAND};
use super::records::{NodeRecord, TaskRecord};
use crate::held_bytes::held_bytes;

/// Non-zero request of cpu for a pod of one container without requests (Kubernetes,
/// `pkg/scheduler/util/pod_resources.go`).
const DEFAULT_CPU_MILLI: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

impl TaskRecord {
    /// Non-zero request of cpu (in thousandths) or memory (in bytes): the reported amount, or the amount of a pod with
    /// one container. For example, 100 for a pod without a cpu request.
    pub fn nonzero_request(&self, id: ResourceId) -> i64 {
        if let Some(nonzero) = &self.nonzero_requests {
            return nonzero.get(id).unwrap_or(0);
        }
        self.requests.get(id).unwrap_or(match id {
            ResourceId::CPU => DEFAULT_CPU_MILLI,
            ResourceId::MEMORY => DEFAULT_MEMORY,
            _ => 0,
        })
    }

    /// Non-zero request of the containers alone, without what the pod as a whole requests; else [`Self::nonzero_request`].
    pub fn container_nonzero_request(&self, id: ResourceId) -> i64 {
        match &self.container_nonzero_requests {
            Some(own) => own.get(id).unwrap_or(0),
            None => self.nonzero_request(id),
        }
    }

    /// Amount that `NodeResourcesFitPlus` adds to a node for the task, in thousandths of cpu and whole units of other
    /// resources: the reported amount, or the amount of a pod with one container.
    pub fn counted_request(&self, id: ResourceId) -> i64 {
        match (&self.counted_requests, id) {
            (Some(counted), _) => counted.whole_units(id).unwrap_or(0),
            (None, ResourceId::CPU | ResourceId::MEMORY) => self.nonzero_request(id),
            (None, _) => self.requests.whole_units(id).unwrap_or(0),
        }
    }
}

/// Differences between Kubernetes' totals and the engine's totals: exact sums in the engine's units, by id, without
/// zeros. Empty for most nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmountDelta(Vec<(ResourceId, i128)>);

held_bytes! { AmountDelta { 0 } }

impl AmountDelta {
    /// Delta of usage that belongs to no task.
    pub fn of_node(record: &NodeRecord) -> Self {
        let mut delta = Self::default();
        let none = ResourceAmounts::default();
        let used = record.unattributed_used.as_ref().unwrap_or(&none);
        let nonzero = record.unattributed_nonzero_used.as_ref().unwrap_or(used);
        each_delta(used, |id| nonzero.get(id).unwrap_or(0), |id, more| delta.add(id, more));
        delta
    }

    /// Adds what Kubernetes counts beyond the requests of a task, or subtracts it.
    pub fn count_task(&mut self, task: &TaskRecord, adds: bool) {
        each_delta(
            &task.requests,
            |id| task.nonzero_request(id),
            |id, more| self.add(id, if adds { more } else { -more }),
        );
    }

    /// Delta of one resource.
    pub fn get(&self, id: ResourceId) -> i128 {
        let found = self.0.iter().find(|(own, _)| *own == id);
        found.map_or(0, |&(_, more)| more)
    }

    /// Resources whose delta is not zero, by id.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.0.iter().map(|&(id, _)| id)
    }

    /// True if Kubernetes and the engine have equal totals.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sum of two deltas.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        other.0.iter().for_each(|&(id, more)| self.add(id, more));
        self
    }

    pub(super) fn add(&mut self, id: ResourceId, more: i128) {
        if more == 0 {
            return;
        }
        match self.0.binary_search_by_key(&id, |&(id, _)| id) {
            Err(place) => self.0.insert(place, (id, more)),
            Ok(found) => {
                let sum = self.0.get_mut(found).map(|(_, sum)| {
                    *sum += more;
                    *sum
                });
                if sum == Some(0) {
                    self.0.remove(found);
                }
            }
        }
    }
}

/// Passes the delta of each resource to `more`.
fn each_delta(amounts: &ResourceAmounts, nonzero: impl Fn(ResourceId) -> i64, mut more: impl FnMut(ResourceId, i128)) {
    for id in [ResourceId::CPU, ResourceId::MEMORY] {
        more(id, i128::from(nonzero(id)) - i128::from(amounts.get(id).unwrap_or(0)));
    }
    for (id, amount) in amounts.iter().filter(|(id, _)| !id.has_kubernetes_unit()) {
        let whole = i128::from(amounts.whole_units(id).unwrap_or(0));
        more(id, whole * i128::from(THOUSAND) - i128::from(amount));
    }
}
