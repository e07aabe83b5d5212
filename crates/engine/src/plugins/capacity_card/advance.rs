//! The plugin's state beside a newer cluster state, from what changed: equal to one computed again in full, to the last bit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cards::ClusterCards;
use super::node_kinds::card_set;
use super::state::CapacityState;
use crate::model::{NodeChange, RecordChange, SortedTable, StateDiff, TaskRecord};

/// Kinds of change that the cards went through.
#[derive(Clone, Copy, Debug, Default)]
struct CardChanges {
    /// Cluster totals.
    total: bool,
    /// Amounts that tasks count.
    needs: bool,
}

impl CapacityState {
    /// The state of the newer cluster state, if this is that of the older one, as it was worked out.
    pub(super) fn advanced(&self, changes: &StateDiff<'_>) -> Option<Self> {
        if !changes.same_slots() {
            return None;
        }
        let mut next = self.clone();
        next.opening_state = changes.new.clone();
        let cards = next.advance_cards(&changes.nodes());
        let tasks = changes.tasks();
        next.advance_tasks_by_job(&tasks);
        let queues = changes.queues();
        if !queues.is_empty() {
            next.sum_guarantees(changes.new);
        }
        if self.compatibility.is_upstream() {
            next.accounts = SortedTable::default();
            next.detached_reservations = SortedTable::default();
            next.build_upstream(changes.new);
            next.add_detached_reservations(changes.new);
            return Some(next);
        }
        let jobs = changes.jobs();
        let mut moved: BTreeSet<&Arc<str>> = jobs.iter().map(|job| job.name).collect();
        for task in &tasks {
            moved.extend(task.before.into_iter().chain(task.after).map(|task| &task.job));
        }
        let rows = changed_reservations(changes);
        moved.extend(&rows);
        if cards.needs {
            next.jobs = SortedTable::default();
            next.detached_reservations = SortedTable::default();
            next.build_corrected(changes.new);
            next.add_detached_reservations(changes.new);
        } else if queues.is_empty() {
            next.advance_limits(changes, cards);
            next.advance_jobs(changes, &moved, true);
        } else {
            next.detached_reservations = SortedTable::default();
            next.advance_jobs(changes, &moved, false);
            next.sum_accounts();
            next.add_detached_reservations(changes.new);
        }
        Some(next)
    }

    fn advance_cards(&mut self, nodes: &[NodeChange<'_>]) -> CardChanges {
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
            let kind = |cards: &ClusterCards| cards.node_cards(name).map(card_set);
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

    fn advance_tasks_by_job(&mut self, tasks: &[RecordChange<'_, TaskRecord>]) {
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
            let mut names = self
                .tasks_by_job
                .remove(job)
                .map(Arc::unwrap_or_clone)
                .unwrap_or_default();
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

    /// Limits follow the cluster's total.
    fn advance_limits(&mut self, changes: &StateDiff<'_>, cards: CardChanges) {
        if !cards.total {
            return;
        }
        let found = Arc::clone(&self.cards);
        for (name, _) in changes.new.queues().iter() {
            let guaranteed = self.guaranteed_beside(name).clone();
            if let Some(account) = self.accounts.get_mut(name) {
                let limits = &mut Arc::make_mut(account).limits;
                Arc::make_mut(limits).update_cluster(found.total(), &guaranteed);
            }
        }
    }

    /// Computes the figures of these jobs again; with `book` their queues' accounts follow.
    fn advance_jobs(&mut self, changes: &StateDiff<'_>, jobs: &BTreeSet<&Arc<str>>, book: bool) {
        let cluster_state = changes.new;
        for &job in jobs {
            if let Some(row) = self.detached_reservations.remove(job) {
                self.charge_detached(&row, false);
            }
            let entry = cluster_state
                .jobs()
                .get(job)
                .map(|stored| self.stored_job_entry(cluster_state, stored));
            if !book {
                match entry {
                    Some(entry) => drop(self.jobs.insert(Arc::clone(job), entry)),
                    None => drop(self.jobs.remove(job)),
                }
                continue;
            }
            self.replace_job(job, entry);
            if let Some(row) = cluster_state.reservations().get(job) {
                self.add_detached_reservation(cluster_state, row);
            }
        }
    }
}

/// Jobs whose reservations differ.
fn changed_reservations<'a>(changes: &StateDiff<'a>) -> Vec<&'a Arc<str>> {
    let (old, new) = (changes.old.reservations(), changes.new.reservations());
    let differences = old.differences(new, |a, b| Arc::ptr_eq(a, b) || a == b).into_iter();
    differences.map(|(job, _, _)| job).collect()
}
