//! Promises of the admission ledger to jobs, in the accounts of their queues: counted once, also if several report them.

use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;

use super::amounts::QuotaAmounts;
use super::job_entry::{JobAmounts, JobEntry};
use super::pieces::Pieces;
use super::state::CapacityState;
use crate::model::reservation::same_incarnation;
use crate::model::{ClusterState, JobPhase, JobRecord, NamedAmounts, Reservation};
use crate::policy::Compatibility;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Counts by name: cpu and memory first, whether or not there is any, then cards.
pub(super) fn named_amounts(counts: &QuotaAmounts) -> NamedAmounts {
    static PLAIN: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| [Arc::from(CPU), Arc::from(MEMORY)]);
    let [cpu, memory] = &*PLAIN;
    let plain = [(cpu, counts.cpu), (memory, counts.memory)];
    let all = plain.into_iter().chain(counts.cards());
    all.map(|(name, amount)| (Arc::clone(name), amount)).collect()
}

/// The counts of a reservation. A card may be named like a resource: those stand first.
fn reservation_amounts(row: &Reservation) -> QuotaAmounts {
    let mut counts = QuotaAmounts::default();
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
fn is_for_job(row: &Reservation, job: &JobRecord) -> bool {
    row.queue == job.queue && row.matches_uid(&job.uid)
}

/// Amounts that count already for a job that asks.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Amounts that do not count against it.
    pub(super) counts: SmallVec<[QuotaAmounts; 2]>,
    /// Pieces of choices that are reserved among these.
    pub(super) pieces: Pieces,
    /// The job's own figures say what it holds in the queue.
    pub(super) held_here: bool,
}

impl JobAmounts {
    /// Takes in what the ledger has under the job's name; true if what the job itself is promised differs.
    pub(super) fn set_reservation(&mut self, row: Option<&Arc<Reservation>>) -> bool {
        let job = self.stored.as_ref().map(|stored| &stored.record);
        let own = row.filter(|row| job.is_some_and(|job| is_for_job(row, job)));
        let reserved = own.map(|row| Arc::new(reservation_amounts(row)));
        self.has_detached_reservation = row.is_some() && reserved.is_none();
        let differs = reserved != self.reserved;
        self.reserved = reserved;
        differs
    }
}

impl CapacityState {
    /// Takes in the rows that no job's own figures hold.
    pub(super) fn add_detached_reservations(&mut self, cluster_state: &ClusterState) {
        for (_, row) in cluster_state.reservations().iter() {
            self.add_detached_reservation(cluster_state, row);
        }
    }

    /// Follows the row of a job, as the cluster state has it now. The queues whose accounts moved.
    pub(super) fn update_reservation(&mut self, cluster_state: &ClusterState, job: &Arc<str>) -> Vec<Arc<str>> {
        let mut moved = Vec::new();
        let row = cluster_state.reservations().get(job);
        let own = self.jobs.get(job).cloned();
        if own.as_ref().is_none_or(|own| own.has_detached_reservation)
            && let Some(old) = self.detached_reservations.remove(job)
        {
            self.charge_detached(&old, false);
            moved.push(Arc::clone(&old.queue));
        }
        let mut taken = false;
        if let Some(mut own) = own {
            if own.set_reservation(row) {
                moved.push(Arc::clone(&own.queue));
            }
            taken = own.reserved.is_some();
            self.replace_job(job, Some(own));
        }
        if let Some(row) = row.filter(|_| !taken) {
            moved.extend(self.add_detached_reservation(cluster_state, row));
        }
        moved
    }

    /// Books a row by itself, if nothing else stands for it.
    pub(super) fn add_detached_reservation(
        &mut self,
        cluster_state: &ClusterState,
        row: &Reservation,
    ) -> Option<Arc<str>> {
        let job = cluster_state.jobs().get(&row.job).map(|stored| &stored.record);
        let counted = match (self.compatibility, job) {
            (_, None) => false,
            (Compatibility::Corrected, Some(job)) => is_for_job(row, job) && self.jobs.contains(&row.job),
            (Compatibility::Upstream(_), Some(job)) => {
                is_for_job(row, job) && !matches!(job.phase, JobPhase::Pending | JobPhase::Unspecified)
            }
        };
        if counted {
            return None;
        }
        // A queue that is not there has no account; its rows come in with it.
        let stored = self.opening_state.queues().get(&row.queue)?;
        if !self.accounts.contains(&row.queue) {
            let account = self.empty_account(&stored.record);
            self.accounts.insert(Arc::clone(&row.queue), Arc::new(account));
        }
        let measurements = JobAmounts {
            queue: Arc::clone(&row.queue),
            min: Arc::new(reservation_amounts(row)),
            sizes: self.config.mixed_cards.then(Arc::default),
            ..JobAmounts::default()
        };
        let entry = JobEntry {
            amounts: Arc::new(measurements),
            admitted: true,
            ..JobEntry::default()
        };
        self.charge_detached(&entry, true);
        self.detached_reservations.insert(Arc::clone(&row.job), entry);
        Some(Arc::clone(&row.queue))
    }

    pub(super) fn charge_detached(&mut self, entry: &JobEntry, add: bool) {
        let compatibility = self.compatibility;
        self.update_accounts(&entry.queue, |_, account| match (compatibility, add) {
            (Compatibility::Corrected, true) => account.add(&entry.contribution()),
            (Compatibility::Corrected, false) => account.subtract(&entry.contribution()),
            (Compatibility::Upstream(_), true) => account.inqueue.add(&entry.min),
            (Compatibility::Upstream(_), false) => account.inqueue.subtract(&entry.min),
        });
    }

    /// Amounts that are still reserved by the reservation of a job.
    pub fn reservation_rest(&self, row: &Reservation) -> QuotaAmounts {
        let own = self.jobs.get(&row.job).and_then(JobEntry::promised);
        own.map_or_else(|| reservation_amounts(row), |promised| promised.inqueue)
    }

    /// Amounts reserved for a job in its queue already, for a vote on it, less what it holds there beyond its former least
    /// and no longer would beyond this one.
    pub(super) fn own_reserves(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        own: Option<&JobEntry>,
        asks: &JobEntry,
    ) -> Own {
        let is_same = |own: &JobEntry| {
            let stored = own.stored.as_ref().or_else(|| cluster_state.jobs().get(&job.name));
            stored.is_none_or(|stored| same_incarnation(&stored.record.uid, &job.uid))
        };
        let row = own
            .is_none_or(|own| own.has_detached_reservation)
            .then(|| self.detached_reservations.get(&job.name));
        let row = row.flatten().filter(|row| row.queue == job.queue);
        let own = own.filter(|own| own.queue == job.queue && is_same(own));
        let mut less = Own {
            held_here: own.is_some(),
            ..Own::default()
        };
        let entries = own.into_iter().chain(row);
        for entry in entries.filter(|entry| entry.admitted || entry.reserved.is_some()) {
            let contribution = entry.promise_and_rest();
            less.counts.push(contribution.inqueue);
            less.pieces.join(&contribution.pieces);
        }
        if let Some(own) = own.filter(|own| !own.allocated.is_empty()) {
            let mut no_longer = QuotaAmounts::default();
            no_longer.subtract(&own.promise_and_rest().elastic.saturating_sub(&asks.split_min().elastic));
            less.counts.push(no_longer);
        }
        less
    }
}
