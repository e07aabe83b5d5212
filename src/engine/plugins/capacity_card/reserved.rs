//! What the admission ledger promises to jobs, in the accounts of their queues: counted once, whoever tells of it.

use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;

use super::counts::Counts;
use super::entry::{Figures, JobEntry, split};
use super::state::CapacityState;
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{JobPhase, JobRecord, NamedAmounts, Reservation, View};
use crate::engine::policy::Compatibility;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Counts by name: cpu and memory first, whether or not there is any, then cards.
pub(super) fn named(counts: &Counts) -> NamedAmounts {
    static PLAIN: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| [Arc::from(CPU), Arc::from(MEMORY)]);
    let [cpu, memory] = &*PLAIN;
    let plain = [(cpu, counts.cpu), (memory, counts.memory)];
    let all = plain.into_iter().chain(counts.cards());
    all.map(|(name, amount)| (Arc::clone(name), amount)).collect()
}

/// The counts of a reservation. A card may be named like a resource: those stand first.
fn counts(row: &Reservation) -> Counts {
    let mut counts = Counts::default();
    for (place, (name, amount)) in row.amounts.iter().enumerate() {
        match (place, &**name) {
            (0, CPU) => counts.cpu = *amount,
            (1, MEMORY) => counts.memory = *amount,
            _ => counts.add_card(name, *amount),
        }
    }
    counts
}

/// True if the row is about the job that is there, in its queue.
fn meets(row: &Reservation, job: &JobRecord) -> bool {
    row.queue == job.queue && row.is_of(&job.uid)
}

impl Figures {
    /// Takes in what the ledger has under the job's name; true if what the job itself is promised differs.
    pub(super) fn promise(&mut self, row: Option<&Arc<Reservation>>) -> bool {
        let job = self.stored.as_ref().map(|stored| &stored.record);
        let own = row.filter(|row| job.is_some_and(|job| meets(row, job)));
        let reserved = own.map(|row| Arc::new(counts(row)));
        self.row_aside = row.is_some() && reserved.is_none();
        let differs = reserved != self.reserved;
        self.reserved = reserved;
        differs
    }
}

impl CapacityState {
    /// Takes in the rows that no job's own figures hold.
    pub(super) fn open_rows(&mut self, view: &View) {
        for (_, row) in view.reservations().iter() {
            self.add_row(view, row);
        }
    }

    /// Follows the row of a job, as the View has it now. The queues whose accounts moved.
    pub(super) fn set_row(&mut self, view: &View, job: &Arc<str>) -> Vec<Arc<str>> {
        let mut moved = Vec::new();
        let row = view.reservations().get(job);
        let (mut aside, mut taken, mut shifted) = (true, false, None);
        if let Some(own) = self.jobs.get_mut(job) {
            aside = own.row_aside;
            let before = own.contribution();
            if own.promise(row) {
                shifted = Some((Arc::clone(&own.queue), before, own.contribution()));
            }
            taken = own.reserved.is_some();
        }
        if let Some(old) = if aside { self.rows.remove(job) } else { None } {
            self.book(&old, false);
            moved.push(Arc::clone(&old.queue));
        }
        if let Some((queue, before, after)) = shifted {
            self.shift(&queue, |_, account| {
                account.take(&before);
                account.add(&after);
            });
            moved.push(queue);
        }
        if let Some(row) = row.filter(|_| !taken) {
            moved.extend(self.add_row(view, row));
        }
        moved
    }

    /// Books a row by itself, if nothing else stands for it.
    pub(super) fn add_row(&mut self, view: &View, row: &Reservation) -> Option<Arc<str>> {
        let job = view.jobs().get(&row.job).map(|stored| &stored.record);
        let counted = match (self.compatibility, job) {
            (_, None) => false,
            (Compatibility::Corrected, Some(job)) => meets(row, job) && self.jobs.contains(&row.job),
            (Compatibility::Upstream, Some(job)) => {
                meets(row, job) && !matches!(job.phase, JobPhase::Pending | JobPhase::Unspecified)
            }
        };
        if counted {
            return None;
        }
        // A queue that is not there has no account; its rows come in with it.
        let stored = self.opened.queues().get(&row.queue)?;
        if !self.accounts.contains(&row.queue) {
            let account = self.empty_account(&stored.record);
            self.accounts.insert(Arc::clone(&row.queue), Arc::new(account));
        }
        let figures = Figures {
            queue: Arc::clone(&row.queue),
            min: Arc::new(counts(row)),
            ..Figures::default()
        };
        let entry = JobEntry {
            figures: Arc::new(figures),
            admitted: true,
            ..JobEntry::default()
        };
        self.book(&entry, true);
        self.rows.insert(Arc::clone(&row.job), entry);
        Some(Arc::clone(&row.queue))
    }

    pub(super) fn book(&mut self, entry: &JobEntry, add: bool) {
        let compatibility = self.compatibility;
        self.shift(&entry.queue, |_, account| match (compatibility, add) {
            (Compatibility::Corrected, true) => account.add(&entry.contribution()),
            (Compatibility::Corrected, false) => account.take(&entry.contribution()),
            (Compatibility::Upstream, true) => account.inqueue.add(&entry.min),
            (Compatibility::Upstream, false) => account.inqueue.subtract(&entry.min),
        });
    }

    /// What is still kept back of the reservation of a job.
    pub fn held_of(&self, row: &Reservation) -> Counts {
        let own = self.jobs.get(&row.job).and_then(|own| {
            let reserved = own.reserved.as_ref()?;
            Some(split(reserved, &own.allocated).inqueue)
        });
        own.unwrap_or_else(|| counts(row))
    }

    /// What is kept back for a job in its queue already, for a vote on it, less what it holds there beyond its former least
    /// and no longer would beyond this one; and whether the job's own figures say what it holds there.
    pub(super) fn own_of(
        &self,
        view: &View,
        job: &JobRecord,
        own: Option<&JobEntry>,
        asks: &JobEntry,
    ) -> (SmallVec<[Counts; 2]>, bool) {
        let is_same = |own: &JobEntry| {
            let stored = own.stored.as_ref().or_else(|| view.jobs().get(&job.name));
            stored.is_none_or(|stored| same_incarnation(&stored.record.uid, &job.uid))
        };
        let row = own.is_none_or(|own| own.row_aside).then(|| self.rows.get(&job.name));
        let row = row.flatten().filter(|row| row.queue == job.queue);
        let own = own.filter(|own| own.queue == job.queue && is_same(own));
        let kept = own.into_iter().chain(row);
        let kept = kept.filter(|entry| entry.admitted || entry.reserved.is_some());
        let mut less: SmallVec<[Counts; 2]> = kept.map(|entry| entry.contribution().inqueue).collect();
        if let Some(own) = own.filter(|own| !own.allocated.is_empty()) {
            let mut no_longer = Counts::default();
            no_longer.subtract(&own.contribution().elastic.left_after(&asks.split().elastic));
            less.push(no_longer);
        }
        (less, own.is_some())
    }
}
