//! State that both rules of the plugin work out from a cluster state and keep beside it: cards, limits, accounts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::cluster_cards::ClusterCards;
use super::config::CapacityConfig;
use super::queue_account::QueueAccount;
use super::queue_limits::{CardQuota, QueueLimits};
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, ErrorCode, NodeChange, Problem, QueueRecord, RecordChange, SortedTable, TaskRecord};
use crate::policy::Compatibility;

/// Cards, limits and accounts of a cluster state. A clone costs a few pointers.
#[derive(Clone, Debug)]
pub struct CardAccounts {
    pub(super) config: CapacityConfig,
    pub(super) compatibility: Compatibility,
    /// The cluster state that it was worked out from.
    pub(super) opening_state: ClusterState,
    pub(super) cards: Arc<ClusterCards>,
    /// Amounts that all queues together are guaranteed.
    pub(super) total_guaranteed: Arc<QuotaAmounts>,
    /// With `cardHierarchy`: by queue, what it and all that it shares with others are guaranteed, each once.
    pub(super) guaranteed_by: Arc<BTreeMap<Arc<str>, QuotaAmounts>>,
    /// Names of tasks, by the name of their job.
    pub(super) tasks_by_job: SortedTable<Arc<Vec<Arc<str>>>>,
    /// By queue.
    pub(super) accounts: SortedTable<Arc<QueueAccount>>,
}

held_bytes! {
    CardAccounts {
        cards, total_guaranteed, guaranteed_by, tasks_by_job, accounts; config, compatibility, opening_state
    }
}

/// Kinds of change that the cards went through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CardChanges {
    /// Cluster totals.
    pub(super) total: bool,
    /// Amounts that tasks count.
    pub(super) needs: bool,
}

impl CardAccounts {
    /// Cards and tasks of a cluster state; no queue has an account yet.
    pub(super) fn of(cluster_state: &ClusterState, config: CapacityConfig, compatibility: Compatibility) -> Self {
        let mut accounts = Self {
            config,
            compatibility,
            opening_state: cluster_state.clone(),
            cards: Arc::new(ClusterCards::of(cluster_state, compatibility)),
            total_guaranteed: Arc::default(),
            guaranteed_by: Arc::default(),
            tasks_by_job: group_tasks_by_job(cluster_state),
            accounts: SortedTable::default(),
        };
        accounts.sum_guarantees(cluster_state);
        accounts
    }

    pub(super) fn sum_guarantees(&mut self, cluster_state: &ClusterState) {
        let mut guaranteed = QuotaAmounts::default();
        for (_, queue) in cluster_state.queues().iter() {
            let queue = &queue.record;
            guaranteed.add(&CardQuota::of(queue, self.compatibility).with_cpu_memory(queue.guarantee.as_ref()));
        }
        self.total_guaranteed = Arc::new(guaranteed);
    }

    /// The limits of a queue.
    pub fn limits(&self, queue: &QueueRecord) -> QueueLimits {
        let quota = CardQuota::of(queue, self.compatibility);
        let guaranteed = self.guaranteed_beside(&queue.name);
        QueueLimits::of(queue, &quota, self.cards.total(), guaranteed, self.compatibility)
    }

    /// Guarantees of a queue and of those that share the cluster with it.
    pub(super) fn guaranteed_beside(&self, queue: &str) -> &QuotaAmounts {
        self.guaranteed_by.get(queue).unwrap_or(&self.total_guaranteed)
    }

    pub(super) fn empty_account(&self, queue: &QueueRecord) -> QueueAccount {
        QueueAccount {
            limits: Arc::new(self.limits(queue)),
            ..QueueAccount::default()
        }
    }

    /// The cards of the cluster.
    pub fn cards(&self) -> &ClusterCards {
        &self.cards
    }

    /// Amounts that all queues together are guaranteed.
    pub fn total_guaranteed(&self) -> &QuotaAmounts {
        &self.total_guaranteed
    }

    /// The account of a queue that has one.
    pub fn account(&self, queue: &str) -> Option<&Arc<QueueAccount>> {
        self.accounts.get(queue)
    }

    /// All accounts, by queue.
    pub fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<QueueAccount>)> {
        self.accounts.iter()
    }

    /// The account of a queue that is there; an empty one if nothing counts in it.
    pub(super) fn account_or_default(&self, queue: &str) -> Result<Cow<'_, Arc<QueueAccount>>, Problem> {
        if let Some(account) = self.accounts.get(queue) {
            return Ok(Cow::Borrowed(account));
        }
        match self.opening_state.queues().get(queue) {
            Some(stored) => Ok(Cow::Owned(Arc::new(self.empty_account(&stored.record)))),
            None => Err(queue_unknown(queue)),
        }
    }

    pub(super) fn job_tasks<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        job: &str,
    ) -> impl Iterator<Item = &'a TaskRecord> + use<'a> {
        let names = self.tasks_by_job.get(job).map_or(&[][..], |names| names.as_slice());
        names
            .iter()
            .filter_map(|name| Some(&cluster_state.tasks().get(name)?.record))
    }

    /// The order key of a queue, the larger priority first, then the smaller share: numbers compared one by one.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn order_key(&self, queue: &str) -> Result<[f64; 2], Problem> {
        let stored = self.opening_state.queues().get(queue);
        let stored = stored.ok_or_else(|| queue_unknown(queue))?;
        let share = self.account(queue).map_or(0.0, |account| account.share());
        Ok([-f64::from(stored.record.priority), share])
    }

    /// Follows changed nodes to a newer cluster state.
    pub(super) fn advance_cards(&mut self, nodes: &[NodeChange<'_>]) -> CardChanges {
        let mut moved = CardChanges::default();
        if nodes.is_empty() {
            return moved;
        }
        let total = self.cards.total().clone();
        let resources = Arc::clone(self.opening_state.resources());
        let cards: &mut ClusterCards = Arc::make_mut(&mut self.cards);
        for node in nodes {
            let name = node.before.or(node.after).map(|entry| &entry.record.name);
            let Some(name) = name else { continue };
            let kind = |cards: &ClusterCards| cards.node_cards(name).map(super::node_kinds::card_set);
            let before = kind(cards);
            moved.needs |= match node.after {
                Some(entry) => cards.put_node(node.slot, &entry.record, &resources, self.compatibility),
                None => cards.remove_node(node.slot, name),
            };
            // Tasks on it count as what it has.
            let in_use = node
                .before
                .into_iter()
                .chain(node.after)
                .any(|entry| !entry.usage.is_empty());
            moved.needs |= in_use && before != kind(cards);
        }
        moved.total = *cards.total() != total;
        moved
    }

    /// Follows tasks that came to jobs, or left them.
    pub(super) fn advance_tasks_by_job(&mut self, tasks: &[RecordChange<'_, TaskRecord>]) {
        let mut by_job: BTreeMap<&Arc<str>, Vec<(&Arc<str>, bool)>> = BTreeMap::new();
        for task in tasks {
            let job = |task: Option<&'_ TaskRecord>| task.map(|task| Arc::clone(&task.job));
            if job(task.before) == job(task.after) {
                continue;
            }
            for (record, joins) in [(task.before, false), (task.after, true)] {
                if let Some(record) = record.filter(|record| !record.job.is_empty()) {
                    by_job.entry(&record.job).or_default().push((task.name, joins));
                }
            }
        }
        for (job, tasks) in by_job {
            let names = self.tasks_by_job.remove(job);
            let mut names = names.map(Arc::unwrap_or_clone).unwrap_or_default();
            for (task, joins) in tasks {
                match (names.binary_search(task), joins) {
                    (Err(place), true) => names.insert(place, Arc::clone(task)),
                    (Ok(place), false) => drop(names.remove(place)),
                    (Ok(_), true) | (Err(_), false) => {}
                }
            }
            if !names.is_empty() {
                self.tasks_by_job.insert(Arc::clone(job), Arc::new(names));
            }
        }
    }
}

/// Problem of a queue that is not there.
pub(super) fn queue_unknown(queue: &str) -> Problem {
    Problem::new(ErrorCode::QueueUnknown, "", format!("there is no queue `{queue}`"))
}

fn group_tasks_by_job(cluster_state: &ClusterState) -> SortedTable<Arc<Vec<Arc<str>>>> {
    let mut by_job: BTreeMap<&Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    let tasks = cluster_state.tasks().iter();
    for (name, task) in tasks.filter(|(_, task)| !task.record.job.is_empty()) {
        by_job.entry(&task.record.job).or_default().push(Arc::clone(name));
    }
    let mut table = SortedTable::default();
    for (job, names) in by_job {
        table.insert(Arc::clone(job), Arc::new(names));
    }
    table
}
