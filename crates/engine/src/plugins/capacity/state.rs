//! Accounts of all queues with their limits, flat or as a tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::queue_accounts::{
    IntegerAmounts, PresentTotals, QueueAccounts, QueueAncestors, QueueTotals, QuotaState,
};
use super::PLUGIN;
use super::limits::{flat_bounds, tree_bounds, unlimited};
use super::tree::QuotaTree;
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, Problem, ResourceVector, StateDiff, TaskRecord};
use crate::plugin_state::TaskTransition;
use crate::policy::Compatibility;

/// State of the plugin for a cluster state.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueCapacityState {
    pub(super) accounts: QueueAccounts,
    /// Number of levels above a queue whose deserved amounts count in reclaim and preemption.
    pub(super) reclaim_level: usize,
    /// Total of the ready nodes.
    total: PresentTotals,
    /// Tree of queues; `None`: flat.
    pub(super) tree: Option<Arc<QuotaTree>>,
    /// Inner queue that has jobs, if any; under `upstream` nothing is decided then.
    inner_with_jobs: Option<Arc<str>>,
    /// Queues with negative amounts, which cannot count, under `corrected`.
    negatives: Arc<BTreeMap<Arc<str>, Problem>>,
}

held_bytes! { QueueCapacityState { accounts, total; reclaim_level, tree, inner_with_jobs, negatives } }

impl QueueCapacityState {
    /// State of a cluster state.
    pub(super) fn of(
        cluster_state: &ClusterState,
        compatibility: Compatibility,
        reclaim_level: usize,
        hierarchy: bool,
    ) -> Self {
        let tree = hierarchy.then(|| Arc::new(QuotaTree::of(cluster_state, compatibility)));
        let ancestors = tree
            .as_ref()
            .map_or_else(QueueAncestors::new, |tree| tree.ancestors.clone());
        let mut state = Self {
            accounts: QueueAccounts::of(cluster_state, compatibility, ancestors),
            reclaim_level,
            total: PresentTotals::of(cluster_state, compatibility),
            tree,
            inner_with_jobs: None,
            negatives: Arc::default(),
        };
        state.find_inner_with_jobs();
        state.set_limits(cluster_state);
        state
    }

    /// Why nothing is decided under `upstream`; `None`: the tree is complete.
    pub fn unready_reason(&self) -> Option<String> {
        let tree = self.tree.as_ref()?;
        if self.compatibility() == Compatibility::Corrected {
            return None;
        }
        if self.accounts.by_queue.iter().next().is_none() {
            return Some("there is no queue".to_owned());
        }
        if let Some((parent, child)) = &tree.missing_parent {
            return Some(format!("there is no queue `{parent}`, the parent of `{child}`"));
        }
        let inner = self.inner_with_jobs.as_ref()?;
        Some(format!("queue `{inner}` has jobs and queues below it"))
    }

    /// True if there is a tree, and decisions are made.
    pub(super) fn has_ready_tree(&self) -> bool {
        self.tree.is_some() && self.unready_reason().is_none()
    }

    fn find_inner_with_jobs(&mut self) {
        let has_jobs = |queue: &&Arc<str>| {
            self.accounts
                .account(queue)
                .is_some_and(|account| account.job_count > 0)
        };
        let tree = self.tree.as_ref().filter(|_| self.compatibility().is_upstream());
        self.inner_with_jobs = tree.and_then(|tree| tree.children.keys().find(has_jobs).cloned());
    }

    /// Computes limits, deserved amounts and shares of all queues.
    fn set_limits(&mut self, cluster_state: &ClusterState) {
        if self.compatibility() == Compatibility::Corrected {
            let names = cluster_state.resources();
            let queues = cluster_state.queues().iter();
            let problems: BTreeMap<Arc<str>, Problem> = queues
                .filter_map(|(name, stored)| Some((Arc::clone(name), stored.record.negative_problem(names)?)))
                .collect();
            if *self.negatives != problems {
                self.negatives = Arc::new(problems);
            }
        }
        let total = self.total.counted_vector(cluster_state.resources());
        let bounds = match &self.tree {
            Some(tree) => tree_bounds(cluster_state, &total, tree, self.compatibility()),
            None => flat_bounds(cluster_state, &total, self.compatibility()),
        };
        let mut near = 0;
        for (name, (bounds, deserved)) in bounds {
            let place = self.accounts.by_queue.find_near(name, &mut near);
            if let Some(account) = place.and_then(|place| self.accounts.by_queue.at_mut(place)) {
                if *account.limits != bounds {
                    account.limits = Arc::new(bounds);
                }
                if *account.deserved != deserved {
                    account.deserved = Arc::new(deserved);
                }
                update_share(account);
            }
        }
    }
}

/// A queue that deserves nothing has the share 1.
fn update_share(account: &mut QueueTotals) {
    if account.deserved.is_empty() {
        account.share = 1.0;
    } else {
        account.update_share();
    }
}

impl QuotaState for QueueCapacityState {
    const PLUGIN: &'static str = PLUGIN;

    fn queue_accounts(&self) -> &QueueAccounts {
        &self.accounts
    }

    fn queue_accounts_mut(&mut self) -> &mut QueueAccounts {
        &mut self.accounts
    }

    fn own_problem(&self, queue: &str) -> Option<&Problem> {
        let place = self.tree.as_ref().and_then(|tree| tree.problems.get(queue));
        place.or_else(|| self.negatives.get(queue))
    }

    fn knows_empty_queues(&self) -> bool {
        self.tree.is_some()
    }

    fn task_limit(account: &QueueTotals) -> &ResourceVector {
        &account.limits.real_capability
    }

    fn headroom(&self, _: &ClusterState, queue: &str, task: &TaskRecord) -> Result<Option<u64>, Problem> {
        Ok(self.room_for(queue, &IntegerAmounts::from(&task.requests)))
    }

    /// Under `upstream` the shares of the queues above stay.
    fn follow_tasks(&mut self, moved: &[(TaskTransition<'_>, bool)]) -> Result<Vec<Arc<str>>, Problem> {
        let Some(place) = self.accounts.apply_tasks(moved)? else {
            return Ok(Vec::new());
        };
        if self.compatibility() == Compatibility::Corrected {
            self.accounts.by_queue.update_to_root(place, update_share);
        } else if let Some(account) = self.accounts.by_queue.at_mut(place) {
            update_share(account);
        }
        let above = self
            .accounts
            .by_queue
            .name(place)
            .map(|queue| self.accounts.ancestors(queue));
        Ok(above.unwrap_or_default().to_vec())
    }

    fn step(&mut self, changes: &StateDiff<'_>) {
        let nodes = changes.nodes();
        let before = self.total.clone();
        self.total.follow(&nodes);
        let queues = changes.queues();
        if self.tree.is_some() && !queues.is_empty() {
            self.tree = Some(Arc::new(QuotaTree::of(changes.new, self.compatibility())));
        }
        // Comparing them costs as much as there are queues.
        let ancestors = self.tree.as_ref().filter(|_| !queues.is_empty());
        let ancestors = ancestors.map(|tree| &tree.ancestors);
        let touched = self.accounts.advance(changes, &queues, ancestors);
        // A tree takes the names of resources from the nodes, and no amounts: its root may hold all that its record permits.
        let unlimited_of = |total: &PresentTotals| unlimited(&total.counted_vector(changes.new.resources()));
        let has_equal_root = || self.tree.is_some() && unlimited_of(&self.total) == unlimited_of(&before);
        let limits_stay = nodes.is_empty() || has_equal_root();
        if touched.requests || !queues.is_empty() {
            self.find_inner_with_jobs();
        }
        if limits_stay && queues.is_empty() {
            self.accounts.by_queue.update_at(&touched.places, update_share);
        } else {
            self.set_limits(changes.new);
        }
    }
}
