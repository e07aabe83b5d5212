//! Entries of others, applied to the ledger.

use std::sync::Arc;

use super::AdmissionLedger;
use super::assumptions::AssumedPlacements;
use crate::store::{ReservationTombstone, StoreWrite, StoredAssumption};
use pumice_engine::model::{ClusterState, JobPhase, Reservation};

impl AdmissionLedger {
    /// Applies the state of a job as another server wrote it. Its lease starts again.
    pub(crate) fn replay_job(
        &mut self,
        cluster_state: &mut ClusterState,
        job: &Arc<str>,
        reservation: Option<&Arc<Reservation>>,
        tombstone: Option<&Arc<ReservationTombstone>>,
    ) {
        if let Some(row) = reservation {
            self.leases.with(|leases| leases.start(job, &row.source, row.lease));
            cluster_state.put_reservation(Arc::clone(row));
        } else {
            self.leases.with(|leases| leases.stop(job));
            cluster_state.remove_reservation(job);
        }
        if let Some(tombstone) = tombstone {
            if self.tombstones.get(job) != Some(tombstone) {
                self.tombstones.insert(Arc::clone(job), Arc::clone(tombstone));
                self.date_tombstone(job, self.last_check);
            }
        } else {
            self.remove_tombstone(job);
        }
        self.dirty.remove(job);
        // The sources of this server may know already that the job has ended.
        let ended = cluster_state.jobs().get(job).is_some_and(|stored| {
            let is_own = reservation.is_some_and(|row| row.matches_uid(&stored.record.uid));
            is_own && stored.record.phase == JobPhase::Completed
        });
        if let Some(row) = reservation.filter(|_| ended) {
            cluster_state.remove_reservation(job);
            self.end_with_job(row);
        }
    }

    /// Writes that remove all reservations and tombstones in memory, before a complete content is applied.
    pub(crate) fn clearing_writes(&self, cluster_state: &ClusterState) -> Vec<StoreWrite> {
        let reserved = cluster_state.reservations().iter().map(|(job, _)| job);
        let ended = self.tombstones.iter().map(|(job, _)| job);
        let clear = |job: &Arc<str>| StoreWrite::Job {
            job: Arc::clone(job),
            reservation: None,
            tombstone: None,
        };
        reserved.chain(ended).map(clear).collect()
    }
}

impl AssumedPlacements {
    /// Applies the state of a task that another server wrote. `is_reported`: a source of the other server has reported
    /// the outcome of the placement. The placement takes effect here until a source of this server also reports it.
    pub(crate) fn replay_task(
        &mut self,
        task: &Arc<str>,
        assumption: Option<&Arc<StoredAssumption>>,
        is_reported: bool,
        cluster_state: &mut ClusterState,
    ) {
        match assumption {
            None if is_reported => self.mark_ended_elsewhere(task),
            None => self.end(task, cluster_state),
            Some(stored) => {
                self.end(task, cluster_state);
                self.assume_stored(stored, cluster_state);
            }
        }
    }

    /// Writes that remove the assumptions in memory from the log. The outcome of their placements is unknown, so they
    /// take effect here until a source reports it.
    pub(crate) fn clearing_writes(&self) -> Vec<StoreWrite> {
        let clear = |task: &Arc<str>| StoreWrite::Task {
            task: Arc::clone(task),
            assumption: None,
            is_reported: true,
        };
        self.tasks().map(clear).collect()
    }
}
