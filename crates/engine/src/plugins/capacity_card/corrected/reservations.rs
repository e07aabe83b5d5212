//! Promises of the admission ledger to jobs, in the accounts of their queues: counted once, also if several report them.

use std::sync::Arc;

use super::job_entry::{JobAmounts, JobEntry, split_promised};
use super::job_minimum::JobMinimum;
use super::path_usage::OwnPart;
use super::state::CapacityState;
use crate::model::reservation::same_incarnation;
use crate::model::{ClusterState, JobRecord, Reservation};
use crate::plugins::capacity_card::QuotaAmounts;

/// True if the row is about the job that is there, in its queue.
fn is_for_job(row: &Reservation, job: &JobRecord) -> bool {
    row.queue == job.queue && row.matches_uid(&job.uid)
}

impl JobAmounts {
    /// Takes in what the ledger has under the job's name; true if what the job itself is promised differs.
    pub(super) fn set_reservation(&mut self, row: Option<&Arc<Reservation>>) -> bool {
        let job = self.stored.as_ref().map(|stored| &stored.record);
        let own = row.filter(|row| job.is_some_and(|job| is_for_job(row, job)));
        let reserved = own.map(|row| Arc::new(QuotaAmounts::of_reservation(row)));
        let differs = reserved != self.reserved;
        self.reserved = reserved;
        differs
    }
}

impl CapacityState {
    /// Follows the row of a job, as the cluster state has it now. The queues whose accounts moved.
    pub(super) fn update_reservation(&mut self, cluster_state: &ClusterState, job: &Arc<str>) -> Vec<Arc<str>> {
        let mut moved = Vec::new();
        let row = cluster_state.reservations().get(job);
        if let Some(old) = self.detached_reservations.remove(job) {
            self.uncharge(&old);
            moved.push(Arc::clone(&old.queue));
        }
        if let Some(known) = self.jobs.find(job) {
            self.change_job(known, |own| {
                if own.set_reservation(row) {
                    moved.push(Arc::clone(&own.queue));
                }
            });
        }
        if let Some(row) = row {
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
        if job.is_some_and(|job| is_for_job(row, job) && self.jobs.contains(&row.job)) {
            return None;
        }
        // A queue that is not there has no account; its rows come in with it.
        if !self.opening_state.queues().contains(&row.queue) {
            return None;
        }
        let measurements = JobAmounts {
            queue: Arc::clone(&row.queue),
            minimum: Arc::new(JobMinimum {
                min: Arc::new(QuotaAmounts::of_reservation(row)),
                sizes: self.config.mixed_cards.then(Vec::new),
                ..JobMinimum::default()
            }),
            ..JobAmounts::default()
        };
        let entry = JobEntry {
            amounts: Arc::new(measurements),
            admitted: true,
            ..JobEntry::default()
        };
        self.charge(&entry);
        self.detached_reservations.insert(Arc::clone(&row.job), entry);
        Some(Arc::clone(&row.queue))
    }

    /// Amounts reserved for a job in its queue already, for a vote on it, less what it holds there beyond its former least
    /// and no longer would beyond this one.
    pub(super) fn own_part(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        own: Option<&JobEntry>,
        asks: &JobEntry,
    ) -> OwnPart {
        let is_same = |own: &JobEntry| {
            let stored = own.stored.as_ref().or_else(|| cluster_state.jobs().get(&job.name));
            stored.is_none_or(|stored| same_incarnation(&stored.record.uid, &job.uid))
        };
        let row = self.detached_reservations.get(&job.name);
        let row = row.filter(|row| row.queue == job.queue);
        let own = own.filter(|own| own.queue == job.queue && is_same(own));
        let mut part = OwnPart {
            held_here: own.is_some(),
            ..OwnPart::default()
        };
        let entries = own.into_iter().chain(row);
        for entry in entries.filter(|entry| entry.admitted || entry.reserved.is_some()) {
            let contribution = entry.promise_and_rest();
            part.excluded.add(&contribution.inqueue);
            part.claims.join(&contribution.claims);
        }
        if let Some(own) = own.filter(|own| !own.allocated.is_empty()) {
            let (_, elastic) = split_promised(&asks.minimum.min, &asks.allocated);
            let no_longer = own.promise_and_rest().elastic.saturating_sub(&elastic);
            part.excluded.subtract(&no_longer);
        }
        part
    }
}
