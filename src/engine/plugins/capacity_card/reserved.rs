//! What the admission ledger promises to jobs, in the accounts of their queues: counted once, whoever tells of it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::counts::Counts;
use super::entry::{JobEntry, split};
use super::state::CapacityState;
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{JobPhase, JobRecord, NamedAmounts, Reservation, View};
use crate::engine::policy::Compatibility;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Counts by name: cpu and memory first, whether or not there is any, then cards.
pub(super) fn named(counts: &Counts) -> NamedAmounts {
    let plain = [(Arc::from(CPU), counts.cpu), (Arc::from(MEMORY), counts.memory)];
    let cards = counts.cards().map(|(name, amount)| (Arc::clone(name), amount));
    plain.into_iter().chain(cards).collect()
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

/// What a job that is there was promised.
pub(super) fn of_job(view: &View, job: &JobRecord) -> Option<Arc<Counts>> {
    let row = view.reservations().get(&job.name)?;
    meets(row, job).then(|| Arc::new(counts(row)))
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
        if let Some(old) = self.rows.remove(job) {
            self.book(&old, false);
            moved.push(Arc::clone(&old.queue));
        }
        let record = view.jobs().get(job).map(|stored| &stored.record);
        if let (Some(record), Some(entry)) = (record, self.jobs.get(job)) {
            let reserved = of_job(view, record);
            if entry.reserved != reserved {
                let entry = JobEntry::clone(entry);
                let queue = Arc::clone(&entry.queue);
                self.replace(job, JobEntry { reserved, ..entry });
                moved.push(queue);
            }
        }
        if let Some(row) = view.reservations().get(job) {
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
        let entry = JobEntry {
            queue: Arc::clone(&row.queue),
            min: Arc::new(counts(row)),
            admitted: true,
            ..JobEntry::default()
        };
        self.book(&entry, true);
        self.rows.insert(Arc::clone(&row.job), Arc::new(entry));
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
    pub(super) fn own_of(&self, view: &View, job: &JobRecord, asks: &JobEntry) -> (SmallVec<[Counts; 2]>, bool) {
        let stored = view.jobs().get(&job.name).map(|stored| &stored.record);
        let same = stored.is_none_or(|stored| same_incarnation(&stored.uid, &job.uid));
        let own = self.jobs.get(&job.name).filter(|own| same && own.queue == job.queue);
        let row = self.rows.get(&job.name).filter(|row| row.queue == job.queue);
        let kept = own.into_iter().chain(row);
        let kept = kept.filter(|entry| entry.admitted || entry.reserved.is_some());
        let mut less: SmallVec<[Counts; 2]> = kept.map(|entry| entry.contribution().inqueue).collect();
        if let Some(own) = own {
            let mut no_longer = Counts::default();
            no_longer.subtract(&own.contribution().elastic.left_after(&asks.split().elastic));
            less.push(no_longer);
        }
        (less, own.is_some())
    }
}
