//! Account of a queue: sums over its jobs, its limits, and its share.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::integer_amounts::IntegerAmounts;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, MIN_AMOUNT, QueueRecord, QueueState, ResourceAmounts, ResourceId, ResourceTable, ResourceVector,
    UNLIMITED_AMOUNT, UNLIMITED_SCALAR,
};
use crate::plugin::{AccountAmounts, PluginAccount};
use crate::policy::Compatibility;

/// Account of one queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueTotals {
    /// Number of jobs in the queue itself.
    pub(crate) job_count: u32,
    /// Number of promises of the ledger to jobs that are not there.
    pub(crate) promise_count: u32,
    /// Sums of the contributions of jobs.
    sums: QueueSums,
    /// Capability, guarantee and real capability.
    pub(crate) limits: Arc<QueueBounds>,
    /// Amounts that the queue deserves.
    pub(crate) deserved: Arc<ResourceVector>,
    /// Largest part of the deserved amounts that is held; of a tree under `upstream` as of the last event of the queue itself.
    pub(crate) share: f64,
}

held_bytes! { QueueTotals { sums, limits, deserved; job_count, promise_count, share } }

impl Deref for QueueTotals {
    type Target = QueueSums;

    fn deref(&self) -> &QueueSums {
        &self.sums
    }
}

impl DerefMut for QueueTotals {
    fn deref_mut(&mut self) -> &mut QueueSums {
        &mut self.sums
    }
}

/// Limits of a queue, from its record and the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueBounds {
    /// True if the queue takes jobs.
    pub(crate) is_open: bool,
    /// Priority; larger first.
    pub(crate) priority: i32,
    /// Weight as the record has it; 1 if it has none.
    pub(crate) weight: i32,
    /// Upper limit as far as there is one.
    pub(crate) capability: Option<ResourceVector>,
    /// Amounts that no other queue may use.
    pub(crate) guarantee: ResourceVector,
    /// Upper limit after the guarantees of others.
    pub(crate) real_capability: ResourceVector,
}

held_bytes! { QueueBounds { capability, guarantee, real_capability; is_open, priority, weight } }

impl Default for QueueBounds {
    fn default() -> Self {
        Self {
            is_open: true,
            priority: 0,
            weight: 1,
            capability: None,
            guarantee: ResourceVector::default(),
            real_capability: ResourceVector::default(),
        }
    }
}

impl QueueBounds {
    /// Limits that the record of a queue gives, without capability and real capability.
    pub(crate) fn of(queue: &QueueRecord, compatibility: Compatibility) -> Self {
        Self {
            is_open: matches!(queue.state, QueueState::Open | QueueState::Unspecified),
            priority: queue.priority,
            weight: queue.weight.unwrap_or(1),
            capability: None,
            guarantee: optional_vector(queue.guarantee.as_ref(), compatibility),
            real_capability: ResourceVector::default(),
        }
    }

    /// Limits of a queue without a tree: its capability, and as real capability what is free together with its guarantee.
    pub(crate) fn without_tree(queue: &QueueRecord, free: &ResourceVector, compatibility: Compatibility) -> Self {
        let mut bounds = Self::of(queue, compatibility);
        let capability = queue.capability.as_ref();
        bounds.capability = capability.and_then(|own| capability_limit(own, compatibility));
        bounds.limit_to(free);
        bounds
    }

    /// Limits a queue to what is free and its guarantee, and to its capability.
    pub(crate) fn limit_to(&mut self, free: &ResourceVector) {
        self.real_capability = free.clone();
        self.real_capability.add(&self.guarantee);
        if let Some(capability) = &self.capability {
            self.real_capability.lower_to_limit(capability);
        }
    }
}

/// Capability as a limit; `None`: nothing is limited. Cpu and memory that no limit is written for are unlimited.
fn capability_limit(capability: &ResourceAmounts, compatibility: Compatibility) -> Option<ResourceVector> {
    if capability.is_empty() {
        return None;
    }
    let mut limit = optional_vector(Some(capability), compatibility);
    for id in [ResourceId::CPU, ResourceId::MEMORY] {
        if !limits(Some(capability), id, compatibility) {
            limit.set(id, UNLIMITED_AMOUNT);
        }
    }
    Some(limit)
}

/// True if a capability limits a resource. Under `upstream` 0 of cpu or memory is no limit, while 0 of another resource is.
pub(crate) fn limits(capability: Option<&ResourceAmounts>, id: ResourceId, compatibility: Compatibility) -> bool {
    let written = capability.and_then(|capability| capability.get(id));
    match compatibility {
        Compatibility::Upstream(_) if id <= ResourceId::MEMORY => written.is_some_and(|amount| amount > 0),
        Compatibility::Upstream(_) => written.is_some(),
        Compatibility::Corrected => written.is_some_and(|amount| amount >= 0),
    }
}

/// Amounts of a total beside what is guaranteed. Under `upstream` a resource of which all is guaranteed is missing, and so
/// limits what queues deserve no longer.
pub(crate) fn unguaranteed(
    total: &ResourceVector,
    guaranteed: &ResourceVector,
    compatibility: Compatibility,
) -> ResourceVector {
    let mut free = total.excess_over(guaranteed);
    if compatibility == Compatibility::Corrected {
        for (id, _) in total.scalars() {
            if free.get(id).is_none() {
                free.set(id, 0.0);
            }
        }
    }
    free
}

/// Vector of amounts, empty if there are none. Negative ones count under `upstream` only.
pub(crate) fn optional_vector(amounts: Option<&ResourceAmounts>, compatibility: Compatibility) -> ResourceVector {
    amounts.map_or_else(ResourceVector::default, |amounts| match compatibility {
        Compatibility::Upstream(_) => ResourceVector::from(amounts),
        Compatibility::Corrected => ResourceVector::from(&amounts.without_negatives()),
    })
}

/// Sum of the guarantees of all queues.
pub(crate) fn guarantee_sum(cluster_state: &ClusterState, compatibility: Compatibility) -> IntegerAmounts {
    let mut sum = IntegerAmounts::default();
    for (_, stored) in cluster_state.queues().iter() {
        if let Some(guarantee) = &stored.record.guarantee {
            match compatibility {
                Compatibility::Upstream(_) => sum.add_record(guarantee, 1),
                Compatibility::Corrected => sum.add_record(&guarantee.without_negatives(), 1),
            }
        }
    }
    sum
}

impl QueueTotals {
    /// Computes the share from what is held and deserved.
    pub(crate) fn update_share(&mut self) {
        self.share = ResourceVector::from(&self.allocated).share_of(&self.deserved);
    }

    /// Empties the sums. Limits, deserved amounts and share stay.
    pub(super) fn clear_sums(&mut self) {
        (self.job_count, self.promise_count) = (0, 0);
        self.sums = QueueSums::default();
    }

    /// Account as listings show it.
    pub(crate) fn shown(&self, names: &ResourceTable) -> PluginAccount {
        let vector = |amounts: &ResourceVector| shown_amounts(names, amounts);
        let allocated = ResourceVector::from(&self.allocated);
        let dominant = self.deserved.iter().filter(|(_, amount)| *amount >= MIN_AMOUNT);
        let mut dominant =
            dominant.filter(|(id, amount)| self.share > 0.0 && allocated.amount(*id) / amount == self.share);
        PluginAccount {
            deserved: vector(&self.deserved),
            guarantee: vector(&self.limits.guarantee),
            capability: self.limits.capability.as_ref().map(vector).unwrap_or_default(),
            real_capability: vector(&self.limits.real_capability),
            share: self.share,
            dominant_resource: dominant
                .next()
                .and_then(|(id, _)| names.shared_name(id).cloned())
                .unwrap_or_default(),
            ..self.sums.shown(names)
        }
    }
}

/// Contribution of a job to the account of its queue, or the sum of contributions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueSums {
    /// Amounts held.
    pub(crate) allocated: IntegerAmounts,
    /// Amounts held or waited for.
    pub(crate) request: IntegerAmounts,
    /// Amounts held beyond what jobs need at least.
    pub(crate) elastic: IntegerAmounts,
    /// Amounts admitted and not yet held.
    pub(crate) inqueue: IntegerAmounts,
}

held_bytes! { QueueSums { allocated, request, elastic, inqueue } }

impl QueueSums {
    /// Adds another contribution.
    pub(super) fn add(&mut self, other: &Self) {
        self.allocated.add(&other.allocated);
        self.request.add(&other.request);
        self.elastic.add(&other.elastic);
        self.inqueue.add(&other.inqueue);
    }

    /// Subtracts another contribution.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.allocated.subtract(&other.allocated);
        self.request.subtract(&other.request);
        self.elastic.subtract(&other.elastic);
        self.inqueue.subtract(&other.inqueue);
    }

    /// Sums as listings show them.
    pub(super) fn shown(&self, names: &ResourceTable) -> PluginAccount {
        let exact = |amounts: &IntegerAmounts| shown_amounts(names, &ResourceVector::from(amounts));
        PluginAccount {
            allocated: exact(&self.allocated),
            request: exact(&self.request),
            inqueue: exact(&self.inqueue),
            elastic: exact(&self.elastic),
            ..PluginAccount::default()
        }
    }
}

/// Amounts by name: cpu and memory, then the others by name; what is not limited is left out.
pub(crate) fn shown_amounts(names: &ResourceTable, amounts: &ResourceVector) -> AccountAmounts {
    let unlimited = |id: ResourceId, amount: f64| match id {
        ResourceId::CPU | ResourceId::MEMORY => amount >= UNLIMITED_AMOUNT,
        _ => amount >= UNLIMITED_SCALAR,
    };
    let shown = amounts.iter().filter(|(id, amount)| !unlimited(*id, *amount));
    let shown = shown.filter_map(|(id, amount)| {
        let name = Arc::clone(names.shared_name(id)?);
        Some((id > ResourceId::MEMORY, name, amount))
    });
    let mut shown: Vec<_> = shown.collect();
    // Cpu and memory are the first two already.
    shown.sort_by(|one, other| match (one.0, other.0) {
        (true, true) => one.1.cmp(&other.1),
        (one, other) => one.cmp(&other),
    });
    shown.into_iter().map(|(_, name, amount)| (name, amount)).collect()
}
