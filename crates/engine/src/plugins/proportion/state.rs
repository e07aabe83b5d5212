//! Accounts of all queues, and their deserved amounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::queue_accounts::{
    IntegerAmounts, PresentTotals, QueueAccounts, QueueAncestors, QueueBounds, QueuePlace, QueueTotals, QuotaState,
    guarantee_sum, unguaranteed,
};
use super::PLUGIN;
use super::division::{DivisionShare, divide};
use super::plugin::deserved_limit;
use super::record_rules::weight_problem;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, Problem, QueueRecord, RecordChange, ResourceVector, StateDiff, TaskRecord, TaskStatus,
};
use crate::plugin_state::TaskTransition;
use crate::policy::Compatibility;

/// State of the plugin for a cluster state.
#[derive(Clone, Debug, PartialEq)]
pub struct ProportionState {
    pub(super) accounts: QueueAccounts,
    /// Total of the ready nodes.
    total: PresentTotals,
    /// Sum of the guarantees of all queues.
    guaranteed: IntegerAmounts,
    /// Queues whose weights or amounts cannot count, under `corrected`.
    problems: Arc<BTreeMap<Arc<str>, Problem>>,
}

held_bytes! { ProportionState { accounts, total, guaranteed; problems } }

impl ProportionState {
    /// State of a cluster state.
    pub fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut state = Self {
            accounts: QueueAccounts::of(cluster_state, compatibility, QueueAncestors::new()),
            total: PresentTotals::of(cluster_state, compatibility),
            guaranteed: IntegerAmounts::default(),
            problems: Arc::default(),
        };
        state.set_limits(cluster_state, None);
        state.divide();
        state
    }

    /// Computes the limits of queues: of all, or if neither the total nor the guarantees changed, of `only` these.
    fn set_limits(&mut self, cluster_state: &ClusterState, only: Option<&[RecordChange<'_, QueueRecord>]>) {
        let records = || {
            cluster_state
                .queues()
                .iter()
                .map(|(name, stored)| (name, &stored.record))
        };
        let compatibility = self.compatibility();
        let guaranteed = guarantee_sum(cluster_state, compatibility);
        let total = self.total.counted_vector(cluster_state.resources());
        let free = unguaranteed(&total, &ResourceVector::from(&guaranteed), compatibility);
        let only = only.filter(|_| self.guaranteed == guaranteed);
        self.guaranteed = guaranteed;
        let mut near = 0;
        match only {
            Some(changed) => changed
                .iter()
                .filter_map(|queue| queue.after)
                .for_each(|queue| self.set_limits_of(queue, &free, &mut near)),
            None => records().for_each(|(_, queue)| self.set_limits_of(queue, &free, &mut near)),
        }
        let mut problems = BTreeMap::new();
        if compatibility == Compatibility::Corrected {
            let names = cluster_state.resources();
            let problem = |queue: &QueueRecord| weight_problem(queue).or_else(|| queue.negative_problem(names));
            problems.extend(records().filter_map(|(name, queue)| Some((Arc::clone(name), problem(queue)?))));
        }
        if *self.problems != problems {
            self.problems = Arc::new(problems);
        }
    }

    fn set_limits_of(&mut self, queue: &QueueRecord, free: &ResourceVector, near: &mut QueuePlace) {
        let limits = QueueBounds::without_tree(queue, free, self.compatibility());
        let accounts = &mut self.accounts.by_queue;
        let Some(place) = accounts.find_near(&queue.name, near) else {
            return;
        };
        let differs = accounts.at(place).is_some_and(|account| *account.limits != limits);
        if differs && let Some(account) = accounts.at_mut(place) {
            account.limits = Arc::new(limits);
        }
    }

    /// Divides the cluster, and computes all shares. A queue that takes no part deserves its guarantee.
    fn divide(&mut self) {
        let mut divided = self.divided(None).into_iter().peekable();
        self.accounts.by_queue.update_each(|name, account| {
            let own = divided.next_if(|(taker, _)| taker == name);
            let deserved = own.map_or_else(|| account.limits.guarantee.clone(), |(_, deserved)| deserved);
            if *account.deserved != deserved {
                account.deserved = Arc::new(deserved);
            }
            account.update_share();
        });
    }

    /// Deserved amounts of the queues that take part in the division, those that have jobs, by name. `unbounded` takes part
    /// in any case, and asks for everything.
    fn divided(&self, unbounded: Option<&str>) -> Vec<(Arc<str>, ResourceVector)> {
        let total = self.total.counted_vector(&self.accounts.resources);
        let takes_part = |(name, account): &(&Arc<str>, &Arc<QueueTotals>)| {
            let takes = account.job_count > 0 || unbounded == Some(&***name);
            takes && !self.problems.contains_key(&***name)
        };
        let takers = self.accounts.by_queue.iter().filter(takes_part);
        let (mut names, mut shares) = (Vec::new(), Vec::new());
        for (name, account) in takers {
            names.push(Arc::clone(name));
            shares.push(DivisionShare {
                weight: account.limits.weight,
                request: if unbounded == Some(&**name) {
                    total.clone()
                } else {
                    ResourceVector::from(&account.request)
                },
                real_capability: &account.limits.real_capability,
                guarantee: &account.limits.guarantee,
            });
        }
        let deserved = divide(&total, &shares, self.compatibility());
        names.into_iter().zip(deserved).collect()
    }

    /// Amounts that a queue deserves for a task: those of its account if it waits for the task already, else those that it
    /// would deserve if it asked for everything.
    pub(super) fn deserved_for(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> Arc<ResourceVector> {
        let account = self
            .accounts
            .account(queue)
            .map(|account| Arc::clone(&account.deserved))
            .unwrap_or_default();
        let stored = cluster_state.tasks().get(&task.name).map(|stored| &stored.record);
        let is_counted = stored.is_some_and(|stored| {
            let status = stored.status;
            let counts = status == TaskStatus::Pending || self.accounts.rules.holds(status);
            counts && stored.job == task.job && stored.requests == task.requests
        });
        if is_counted {
            return account;
        }
        let own = self.divided(Some(queue)).into_iter().find(|(name, _)| **name == *queue);
        own.map_or(account, |(_, deserved)| Arc::new(deserved))
    }
}

impl QuotaState for ProportionState {
    const PLUGIN: &'static str = PLUGIN;

    fn queue_accounts(&self) -> &QueueAccounts {
        &self.accounts
    }

    fn queue_accounts_mut(&mut self) -> &mut QueueAccounts {
        &mut self.accounts
    }

    fn own_problem(&self, queue: &str) -> Option<&Problem> {
        self.problems.get(queue)
    }

    fn knows_empty_queues(&self) -> bool {
        false
    }

    fn task_limit(account: &QueueTotals) -> &ResourceVector {
        &account.deserved
    }

    fn headroom(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Result<Option<u64>, Problem> {
        let account = self.known_account(queue)?;
        let deserved = self.deserved_for(cluster_state, queue, task);
        let limit = deserved_limit(queue, &deserved, account);
        Ok(limit.headroom(&account.allocated, &IntegerAmounts::from(&task.requests)))
    }

    fn follow_tasks(&mut self, moved: &[(TaskTransition<'_>, bool)]) -> Result<Vec<Arc<str>>, Problem> {
        let place = self.accounts.apply_tasks(moved)?;
        if let Some(account) = place.and_then(|place| self.accounts.by_queue.at_mut(place)) {
            account.update_share();
        }
        Ok(Vec::new())
    }

    fn step(&mut self, changes: &StateDiff<'_>) {
        let nodes = changes.nodes();
        self.total.follow(&nodes);
        let queues = changes.queues();
        let touched = self.accounts.advance(changes, &queues, None);
        let has_limits = !nodes.is_empty() || !queues.is_empty();
        if has_limits {
            self.set_limits(
                changes.new,
                Some(&queues).filter(|_| nodes.is_empty()).map(Vec::as_slice),
            );
        }
        if has_limits || touched.requests {
            self.divide();
        } else {
            self.accounts
                .by_queue
                .update_at(&touched.places, QueueTotals::update_share);
        }
    }
}
