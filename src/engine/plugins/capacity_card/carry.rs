//! The plugin's state beside a newer View, from what changed: equal to one worked out anew, to the last bit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cards::Cards;
use super::kinds::set_of;
use super::state::CapacityState;
use crate::engine::model::{Changed, ChangedNode, Changes, Table, TaskRecord};
use crate::engine::policy::Compatibility;

/// What became of the cards.
#[derive(Clone, Copy, Debug, Default)]
struct CardsMoved {
    /// Cluster totals.
    total: bool,
    /// What tasks count.
    needs: bool,
}

impl CapacityState {
    /// The state of the newer View, if this is that of the older one, as it was worked out.
    pub(super) fn carried(&self, changes: &Changes<'_>) -> Option<Self> {
        if !changes.same_slots() {
            return None;
        }
        let mut next = self.clone();
        next.opened = changes.new.clone();
        let cards = next.carry_cards(&changes.nodes());
        let tasks = changes.tasks();
        next.carry_tasks_of(&tasks);
        let queues = changes.queues();
        if !queues.is_empty() {
            next.guarantee(changes.new);
        }
        if self.compatibility == Compatibility::Upstream {
            next.accounts = Table::default();
            next.rows = Table::default();
            next.open_upstream(changes.new);
            next.open_rows(changes.new);
            return Some(next);
        }
        let jobs = changes.jobs();
        let mut moved: BTreeSet<&Arc<str>> = jobs.iter().map(|job| job.name).collect();
        for task in &tasks {
            moved.extend(task.before.into_iter().chain(task.after).map(|task| &task.job));
        }
        let rows = reservations(changes);
        moved.extend(&rows);
        if cards.needs {
            next.jobs = Table::default();
            next.rows = Table::default();
            next.open_corrected(changes.new);
            next.open_rows(changes.new);
        } else if queues.is_empty() {
            next.carry_limits(changes, cards);
            next.carry_jobs(changes, &moved, true);
        } else {
            next.rows = Table::default();
            next.carry_jobs(changes, &moved, false);
            next.sum();
            next.open_rows(changes.new);
        }
        Some(next)
    }

    fn carry_cards(&mut self, nodes: &[ChangedNode<'_>]) -> CardsMoved {
        let mut moved = CardsMoved::default();
        if nodes.is_empty() {
            return moved;
        }
        let total = self.cards.total().clone();
        let resources = Arc::clone(self.opened.resources());
        let cards: &mut Cards = Arc::make_mut(&mut self.cards);
        for node in nodes {
            let name = node.before.or(node.after).map(|entry| &entry.record.name);
            let Some(name) = name else { continue };
            let kind = |cards: &Cards| cards.on_node(name).map(set_of);
            let before = kind(cards);
            moved.needs |= match node.after {
                Some(entry) => cards.put(node.slot, &entry.record, &resources, self.compatibility),
                None => cards.remove(node.slot, name),
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

    fn carry_tasks_of(&mut self, tasks: &[Changed<'_, TaskRecord>]) {
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
            let mut names = self.tasks_of.remove(job).map(Arc::unwrap_or_clone).unwrap_or_default();
            for (task, joins) in tasks {
                match (names.binary_search(task), joins) {
                    (Err(place), true) => names.insert(place, Arc::clone(task)),
                    (Ok(place), false) => drop(names.remove(place)),
                    (Ok(_), true) | (Err(_), false) => {}
                }
            }
            if !names.is_empty() {
                self.tasks_of.insert(Arc::clone(job), Arc::new(names));
            }
        }
    }

    /// Limits follow the cluster's total.
    fn carry_limits(&mut self, changes: &Changes<'_>, cards: CardsMoved) {
        if !cards.total {
            return;
        }
        let (found, guaranteed) = (Arc::clone(&self.cards), Arc::clone(&self.guaranteed));
        for (name, _) in changes.new.queues().iter() {
            if let Some(account) = self.accounts.get_mut(name) {
                let limits = &mut Arc::make_mut(account).limits;
                Arc::make_mut(limits).refit(found.total(), &guaranteed);
            }
        }
    }

    /// Works the figures of these jobs out anew; with `book` their queues' accounts follow.
    fn carry_jobs(&mut self, changes: &Changes<'_>, jobs: &BTreeSet<&Arc<str>>, book: bool) {
        let view = changes.new;
        for &job in jobs {
            if let Some(row) = self.rows.remove(job) {
                self.book(&row, false);
            }
            let entry = view.jobs().get(job).map(|stored| self.entry_of(view, stored));
            let old = match &entry {
                Some(entry) => self.jobs.insert(Arc::clone(job), entry.clone()),
                None => self.jobs.remove(job),
            };
            if !book {
                continue;
            }
            if let Some(old) = old {
                self.shift(&old.queue, |level, account| {
                    account.take_job(level, &old);
                    account.take_request(&old);
                });
            }
            if let Some(entry) = entry {
                self.shift(&entry.queue, |level, account| {
                    account.add_job(level, &entry);
                    account.add_request(&entry);
                });
            }
            if let Some(row) = view.reservations().get(job) {
                self.add_row(view, row);
            }
        }
    }
}

/// Jobs whose reservations differ.
fn reservations<'a>(changes: &Changes<'a>) -> Vec<&'a Arc<str>> {
    let (old, new) = (changes.old.reservations(), changes.new.reservations());
    let differences = old.differences(new, |a, b| Arc::ptr_eq(a, b) || a == b).into_iter();
    differences.map(|(job, _, _)| job).collect()
}
