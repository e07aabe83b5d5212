//! What Kubernetes counts and Volcano does not: whole units instead of thousandths, and non-zero requests.

use super::amounts::{ResourceAmounts, ResourceId, THOUSAND};
use super::records::{NodeRecord, TaskRecord};

/// Non-zero requests of a pod of one container that says nothing (Kubernetes, `pkg/scheduler/util/pod_resources.go`).
const DEFAULT_CPU_MILLI: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

impl TaskRecord {
    /// The non-zero request of cpu (in thousandths) or memory (in bytes). As Kubernetes has it, if that was said; else as
    /// for a pod of one container.
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

    /// What `NodeResourcesFitPlus` adds to a node for the task: thousandths of cpu, whole units of anything else. As it
    /// was said, else as for a pod of one container.
    pub fn counted_request(&self, id: ResourceId) -> i64 {
        match (&self.counted_requests, id) {
            (Some(counted), _) => counted.whole_units(id).unwrap_or(0),
            (None, ResourceId::CPU | ResourceId::MEMORY) => self.nonzero_request(id),
            (None, _) => self.requests.whole_units(id).unwrap_or(0),
        }
    }
}

/// By how much records count more (or less) in Kubernetes than in the engine's totals: exact sums in the engine's units,
/// by id, without zeros. For most nodes there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmountDelta(Vec<(ResourceId, i128)>);

impl AmountDelta {
    /// What usage that belongs to no task counts more.
    pub fn of_node(record: &NodeRecord) -> Self {
        let mut surplus = Self::default();
        let none = ResourceAmounts::default();
        let used = record.unattributed_used.as_ref().unwrap_or(&none);
        let nonzero = record.unattributed_nonzero_used.as_ref().unwrap_or(used);
        each_delta(
            used,
            |id| nonzero.get(id).unwrap_or(0),
            |id, more| surplus.add(id, more),
        );
        surplus
    }

    /// Counts a task.
    pub fn add_task(&mut self, task: &TaskRecord) {
        each_delta(
            &task.requests,
            |id| task.nonzero_request(id),
            |id, more| self.add(id, more),
        );
    }

    /// Takes a task out that was counted.
    pub fn subtract_task(&mut self, task: &TaskRecord) {
        each_delta(
            &task.requests,
            |id| task.nonzero_request(id),
            |id, more| self.add(id, -more),
        );
    }

    /// How much more of a resource.
    pub fn get(&self, id: ResourceId) -> i128 {
        let found = self.0.iter().find(|(own, _)| *own == id);
        found.map_or(0, |&(_, more)| more)
    }

    /// Resources of which it is not zero, by id.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.0.iter().map(|&(id, _)| id)
    }

    /// True if everything counts alike.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sums of two.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        other.0.iter().for_each(|&(id, more)| self.add(id, more));
        self
    }

    fn add(&mut self, id: ResourceId, more: i128) {
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

/// By how much these amounts count more, resource by resource.
fn each_delta(amounts: &ResourceAmounts, nonzero: impl Fn(ResourceId) -> i64, mut more: impl FnMut(ResourceId, i128)) {
    for id in [ResourceId::CPU, ResourceId::MEMORY] {
        more(id, i128::from(nonzero(id)) - i128::from(amounts.get(id).unwrap_or(0)));
    }
    for (id, amount) in amounts.iter().filter(|(id, _)| !id.has_kubernetes_unit()) {
        let whole = i128::from(amounts.whole_units(id).unwrap_or(0));
        more(id, whole * i128::from(THOUSAND) - i128::from(amount));
    }
}
