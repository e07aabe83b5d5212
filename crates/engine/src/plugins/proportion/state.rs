//! Accounts of all queues, and their deserved amounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::queue_accounts::{
    IntegerAmounts, PresentTotals, QueueAccounts, QueueAncestors, QueueBounds, QueueTotals, optional_vector,
    reference_panics, unknown_queue,
};
use super::division::{DivisionShare, divide};
use super::record_rules::weight_problem;
use crate::model::{
    ClusterState, NodeEntry, NodeVector, Problem, ResourceAmounts, ResourceId, ResourceVector, StateDiff,
    UNLIMITED_AMOUNT,
};
use crate::plugin_state::{PlacementEvent, PluginState, TaskTransition, older_as};
use crate::policy::Compatibility;

/// State of the plugin for a cluster state.
#[derive(Clone, Debug, PartialEq)]
pub struct ProportionState {
    pub(super) accounts: QueueAccounts,
    /// Total of the ready nodes.
    total: PresentTotals,
    /// Sum of the guarantees of all queues.
    guaranteed: IntegerAmounts,
    /// Queues whose weights cannot count, under `corrected`.
    problems: Arc<BTreeMap<Arc<str>, Problem>>,
}

impl ProportionState {
    /// State of a cluster state.
    pub fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut state = Self {
            accounts: QueueAccounts::of(cluster_state, compatibility, QueueAncestors::new()),
            total: PresentTotals::default(),
            guaranteed: IntegerAmounts::default(),
            problems: Arc::default(),
        };
        for (_, entry) in cluster_state.nodes() {
            state.count_node(entry, true);
        }
        state.set_limits(cluster_state);
        state.divide();
        state
    }

    /// Compatibility of the policy.
    pub(super) fn compatibility(&self) -> Compatibility {
        self.accounts.rules.compatibility
    }

    /// Total of the ready nodes.
    pub fn total(&self) -> ResourceVector {
        self.total.vector()
    }

    /// Sum of the guarantees of all queues.
    pub fn guaranteed(&self) -> ResourceVector {
        ResourceVector::from(&self.guaranteed)
    }

    fn count_node(&mut self, entry: &NodeEntry, add: bool) {
        let record = &entry.record;
        if record.ready == Some(false) {
            return;
        }
        let given = [Some(&record.allocatable), record.oversubscription.as_ref()];
        let ids: BTreeSet<ResourceId> = given
            .into_iter()
            .flatten()
            .flat_map(|amounts| amounts.iter().map(|(id, _)| id))
            .collect();
        for id in ids {
            let amount = entry.exact(id, NodeVector::Allocatable).unwrap_or(0);
            if add {
                self.total.add(id, amount);
            } else {
                self.total.subtract(id, amount);
            }
        }
    }

    /// Computes the limits of all queues.
    fn set_limits(&mut self, cluster_state: &ClusterState) {
        let records = || {
            cluster_state
                .queues()
                .iter()
                .map(|(name, stored)| (name, &stored.record))
        };
        let mut guaranteed = IntegerAmounts::default();
        for (_, queue) in records() {
            if let Some(guarantee) = &queue.guarantee {
                guaranteed.add_record(guarantee, 1);
            }
        }
        let free = self.total.vector().excess_over(&ResourceVector::from(&guaranteed));
        self.guaranteed = guaranteed;
        let mut problems = BTreeMap::new();
        for (name, queue) in records() {
            let mut limits = QueueBounds::of(queue);
            limits.real_capability = free.clone();
            limits.real_capability.add(&limits.guarantee);
            limits.capability = queue.capability.as_ref().and_then(capability_limit);
            if let Some(capability) = &limits.capability {
                limits.real_capability.lower_to_limit(capability);
            }
            if self.compatibility() == Compatibility::Corrected
                && let Some(problem) = weight_problem(queue)
            {
                problems.insert(Arc::clone(name), problem);
            }
            if let Some(account) = self.accounts.by_queue.get_mut(name)
                && *account.limits != limits
            {
                Arc::make_mut(account).limits = Arc::new(limits);
            }
        }
        if *self.problems != problems {
            self.problems = Arc::new(problems);
        }
    }

    /// Divides the cluster among the queues that have jobs, and computes all shares. A queue that takes no part deserves
    /// its guarantee.
    fn divide(&mut self) {
        let accounts: Vec<(Arc<str>, Arc<QueueTotals>)> = self
            .accounts
            .by_queue
            .iter()
            .map(|(name, account)| (Arc::clone(name), Arc::clone(account)))
            .collect();
        let takes_part =
            |(name, account): &(Arc<str>, Arc<QueueTotals>)| account.job_count > 0 && !self.problems.contains_key(name);
        let (takers, others): (Vec<_>, Vec<_>) = accounts.iter().partition(|entry| takes_part(entry));
        let mut shares = Vec::with_capacity(takers.len());
        for taker in &takers {
            let (_, account) = taker;
            shares.push(DivisionShare {
                weight: account.limits.weight,
                request: ResourceVector::from(&account.request),
                real_capability: &account.limits.real_capability,
                guarantee: &account.limits.guarantee,
                deserved: ResourceVector::default(),
                is_met: false,
            });
        }
        divide(&self.total.vector(), &mut shares, self.compatibility());
        let deserved: Vec<ResourceVector> = shares.into_iter().map(|share| share.deserved).collect();
        let guaranteed = others
            .iter()
            .map(|(name, account)| (name, account.limits.guarantee.clone()));
        let divided = takers.iter().map(|(name, _)| name).zip(deserved);
        let all: Vec<(Arc<str>, ResourceVector)> = guaranteed
            .chain(divided)
            .map(|(name, deserved)| (Arc::clone(name), deserved))
            .collect();
        for (name, deserved) in all {
            if let Some(account) = self.accounts.by_queue.get_mut(&name) {
                let account = Arc::make_mut(account);
                if *account.deserved != deserved {
                    account.deserved = Arc::new(deserved);
                }
                account.update_share();
            }
        }
    }

    fn update_share(&mut self, queue: &str) {
        if let Some(account) = self.accounts.by_queue.get_mut(queue) {
            Arc::make_mut(account).update_share();
        }
    }

    /// Account of a queue that the plugin knows: under `upstream` one with a job.
    ///
    /// # Errors
    /// There is no such queue, the reference does not know it and panics, or its weight cannot count.
    pub(super) fn known_account(&self, queue: &str) -> Result<&Arc<QueueTotals>, Problem> {
        let account = self.existing_account(queue)?;
        if self.compatibility() == Compatibility::Upstream && account.job_count + account.promise_count == 0 {
            return Err(reference_panics(&format!("queue `{queue}` has no jobs")));
        }
        Ok(account)
    }

    /// Account of a queue that exists.
    ///
    /// # Errors
    /// There is no such queue, or its weight cannot count.
    pub(super) fn existing_account(&self, queue: &str) -> Result<&Arc<QueueTotals>, Problem> {
        if let Some(problem) = self.problems.get(queue) {
            return Err(problem.clone());
        }
        self.accounts.account(queue).ok_or_else(|| unknown_queue(queue))
    }

    /// Problem that keeps a queue out of the division.
    pub(super) fn weight_problem(&self, queue: &str) -> Option<&Problem> {
        self.problems.get(queue)
    }

    /// State of the newer cluster state, if this is that of the older one, as it was computed.
    fn advanced(&self, changes: &StateDiff<'_>) -> Option<Self> {
        if !changes.same_slots() {
            return None;
        }
        let mut next = self.clone();
        let nodes = changes.nodes();
        for node in &nodes {
            if let Some(entry) = node.before {
                next.count_node(entry, false);
            }
            if let Some(entry) = node.after {
                next.count_node(entry, true);
            }
        }
        let touched = next.accounts.advance(changes);
        let queues = changes.queues();
        if queues
            .iter()
            .any(|queue| queue.before.is_none() || queue.after.is_none())
        {
            next.accounts.add_up(changes.new);
        }
        let has_limits = !nodes.is_empty() || !queues.is_empty();
        if has_limits {
            next.set_limits(changes.new);
        }
        if has_limits || touched.requests {
            next.divide();
        } else {
            for queue in &touched.queues {
                next.update_share(queue);
            }
        }
        Some(next)
    }

    fn apply_task(&mut self, moved: &TaskTransition<'_>, holds: bool, times: u64) -> Result<(), Problem> {
        if let Some(queue) = self.accounts.apply_task(moved, holds, times)? {
            self.update_share(&queue);
        }
        Ok(())
    }
}

/// Capability as a limit; `None`: nothing is limited. Cpu and memory that are not above 0 are unlimited, other resources
/// of 0 are not.
fn capability_limit(capability: &ResourceAmounts) -> Option<ResourceVector> {
    if capability.is_empty() {
        return None;
    }
    let mut limit = optional_vector(Some(capability));
    for id in [ResourceId::CPU, ResourceId::MEMORY] {
        if limit.amount(id) <= 0.0 {
            limit.set(id, UNLIMITED_AMOUNT);
        }
    }
    Some(limit)
}

impl PluginState for ProportionState {
    fn accounts(&self) -> Option<&dyn crate::plugin::PluginAccounts> {
        Some(self)
    }

    fn apply(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match event {
            PlacementEvent::Allocate(moved) | PlacementEvent::Pipeline(moved) => self.apply_task(moved, true, 1)?,
            PlacementEvent::Deallocate(moved) => self.apply_task(moved, false, 1)?,
            PlacementEvent::Enqueue(job) => self.accounts.confirm(job, true),
            PlacementEvent::Dequeue(job) => self.accounts.confirm(job, false),
            PlacementEvent::Reserve(job) => return Ok(self.accounts.update_promise(cluster_state, job)),
        }
        Ok(Vec::new())
    }

    fn apply_repeated(&mut self, _: &ClusterState, event: &PlacementEvent<'_>, times: u64) -> Result<(), Problem> {
        match event.counted_task() {
            Some(moved) => self.apply_task(moved, true, times),
            None => Ok(()),
        }
    }

    fn advance(&self, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(self.advanced(changes)?))
    }

    fn held_bytes(&self, older: Option<&dyn PluginState>) -> usize {
        let older: Option<&Self> = older_as(older);
        size_of::<Self>() + self.total.held_bytes() + self.accounts.held_bytes(older.map(|older| &older.accounts))
    }

    fn copy(&self) -> Arc<dyn PluginState> {
        Arc::new(self.clone())
    }
}
