//! The admission ledger: what jobs were promised, kept by the writer and shown in every snapshot.
//!
//! A row lives in the cluster state ([`ClusterState::reservations`]), so that every question counts it; what only the writer needs,
//! tombstones and leases, is kept here. A group of commands is settled on a copy of the cluster state, written to the store in
//! one go, and only then becomes the state: after a failed write nothing has happened.

mod confirm;
mod draft;
mod leases;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use confirm::{
    ConfirmItem, ConfirmOutcome, ConfirmReader, JobConfirmOutcome, LedgerConfirm, LedgerRelease, ReservationStatus,
};
pub(super) use draft::{AppliedDraft, LedgerDraft};
pub(super) use leases::LeaseTable;

use super::limits::StateLimits;
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{ClusterState, JobPhase, JobRecord, Reservation, SortedTable};
use crate::store::{Durability, ReservationTombstone, Store, StoreError, StoreWrite, StoredState};

/// Time passes twice a second; after so long the writer sees to it itself.
const OVERDUE: Duration = Duration::from_secs(2);

/// Leases, which listings read while the writer goes on.
pub(super) type SharedLeases = Arc<Mutex<LeaseTable>>;

/// What the writer keeps of the ledger besides the rows.
#[derive(Debug)]
pub(super) struct AdmissionLedger {
    limits: StateLimits,
    store: Box<dyn Store>,
    tombstones: SortedTable<Arc<ReservationTombstone>>,
    /// By age: since when each tombstone stands.
    tombstones_by_age: BTreeSet<(Duration, Arc<str>)>,
    tombstone_since: BTreeMap<Arc<str>, Duration>,
    /// When it last let time pass.
    last_check: Duration,
    leases: SharedLeases,
    /// Jobs of which the store may hold something else than is true.
    dirty: BTreeSet<Arc<str>>,
    checks: bool,
}

impl AdmissionLedger {
    /// A ledger over a store, with what is kept there put into the cluster state. Every lease begins anew.
    pub(super) fn open(
        limits: &StateLimits,
        store: Box<dyn Store>,
        kept: &StoredState,
        leases: &SharedLeases,
        cluster_state: &mut ClusterState,
    ) -> Self {
        let mut ledger = Self {
            limits: limits.clone(),
            store,
            tombstones: SortedTable::default(),
            tombstones_by_age: BTreeSet::new(),
            tombstone_since: BTreeMap::new(),
            last_check: Duration::ZERO,
            leases: Arc::clone(leases),
            dirty: BTreeSet::new(),
            checks: true,
        };
        for row in &kept.reservations {
            lock_leases(leases).start(&row.job, &row.source, row.lease);
            cluster_state.put_reservation(Arc::clone(row));
        }
        for tombstone in &kept.tombstones {
            ledger
                .tombstones
                .insert(Arc::clone(&tombstone.job), Arc::clone(tombstone));
            ledger.date_tombstone(&tombstone.job, Duration::ZERO);
        }
        ledger
    }

    /// Promises whatever is asked for: the harm that tests of the promise must find.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn without_checks(mut self, without: bool) -> Self {
        self.checks = !without;
        self
    }

    /// Where permits are kept.
    pub(super) fn durability(&self) -> Durability {
        self.store.durability()
    }

    /// The store, for what is not of this ledger.
    pub(super) fn store(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// A record of a job came in the place of another, or none did. True if that ended its reservation.
    pub(super) fn job_changed(
        &mut self,
        cluster_state: &mut ClusterState,
        before: Option<&JobRecord>,
        after: Option<&JobRecord>,
    ) -> bool {
        let Some(name) = after.or(before).map(|job| &job.name) else {
            return false;
        };
        if let (Some(after), Some(grave)) = (after, self.tombstones.get(name))
            && grave.job_ended
            && grave.uid == after.uid
            && after.phase != JobPhase::Completed
        {
            self.remove_tombstone(&Arc::clone(name));
        }
        let Some(row) = cluster_state.reservations().get(name).cloned() else {
            return false;
        };
        let was = before.is_some_and(|before| row.matches_uid(&before.uid));
        let ended = match after {
            Some(after) if row.matches_uid(&after.uid) => after.phase == JobPhase::Completed,
            // Another incarnation in its place; or one that is older than the row, if this one was never seen.
            Some(_) | None => was,
        };
        if ended {
            cluster_state.remove_reservation(name);
            self.end_with_job(&row);
        }
        ended
    }

    /// Ends the reservations of a source that is forgotten: nobody else can tell of their jobs.
    pub(super) fn forget_source(&mut self, cluster_state: &mut ClusterState, source: &str) {
        let own = cluster_state
            .reservations()
            .iter()
            .filter(|(_, row)| *row.source == *source);
        let own: Vec<Arc<Reservation>> = own.map(|(_, row)| Arc::clone(row)).collect();
        for row in own {
            cluster_state.remove_reservation(&row.job);
            self.end_with_job(&row);
        }
    }

    /// A row that ended with its job. The store is told with the next write.
    fn end_with_job(&mut self, row: &Reservation) {
        self.lock_leases().stop(&row.job);
        self.dirty.insert(Arc::clone(&row.job));
        // Without a name for the incarnation the next job of this name could not be told from it.
        if !row.uid.is_empty() {
            let grave = ReservationTombstone {
                job: Arc::clone(&row.job),
                uid: Arc::clone(&row.uid),
                attempt: row.attempt,
                job_ended: true,
            };
            self.tombstones.insert(Arc::clone(&row.job), Arc::new(grave));
            self.date_tombstone(&row.job, self.last_check);
        }
    }

    fn remove_tombstone(&mut self, job: &Arc<str>) {
        self.tombstones.remove(job);
        if let Some(since) = self.tombstone_since.remove(job) {
            self.tombstones_by_age.remove(&(since, Arc::clone(job)));
        }
        self.dirty.insert(Arc::clone(job));
    }

    /// Notes since when a tombstone stands.
    fn date_tombstone(&mut self, job: &Arc<str>, now: Duration) {
        if let Some(since) = self.tombstone_since.insert(Arc::clone(job), now) {
            self.tombstones_by_age.remove(&(since, Arc::clone(job)));
        }
        self.tombstones_by_age.insert((now, Arc::clone(job)));
    }

    /// Forgets tombstones that are old, or too many.
    fn expire_tombstones(&mut self, now: Duration) {
        while let Some((since, job)) = self.tombstones_by_age.first() {
            let old = now.saturating_sub(*since) > self.limits.tombstone_age;
            if !old && self.tombstones_by_age.len() <= self.limits.reservation_tombstones {
                break;
            }
            let job = Arc::clone(job);
            self.remove_tombstone(&job);
        }
    }

    /// True if nobody let time pass for long: whoever does so finds no room in a queue that is always full.
    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_check) >= OVERDUE
    }

    /// Lets time pass: leases run, old tombstones go. The jobs whose leases are over, for [`LedgerDraft::expire`].
    pub(super) fn advance_clock(&mut self, now: Duration, heard: BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.last_check = self.last_check.max(now);
        self.expire_tombstones(now);
        let mut leases = self.lock_leases();
        leases.advance_clock(now, heard);
        leases.expired()
    }

    /// Writes what a stage changed, and what the store does not know yet, in one go. `others`: with it, what is not of
    /// this ledger.
    ///
    /// # Errors
    /// The store failed: nothing of the stage has happened.
    pub(super) fn write_draft(
        &mut self,
        stage: LedgerDraft,
        now: Duration,
        others: Vec<StoreWrite>,
    ) -> Result<AppliedDraft, StoreError> {
        let jobs: BTreeSet<&Arc<str>> = self.dirty.iter().chain(&stage.changed_jobs).collect();
        let mut writes = others;
        writes.extend(jobs.into_iter().map(|job| StoreWrite::Job {
            job: Arc::clone(job),
            reservation: stage.cluster_state.reservations().get(job).cloned(),
            tombstone: stage.tombstones.get(job).cloned(),
        }));
        if !writes.is_empty()
            && let Err(error) = self.store.write(&writes)
        {
            // Whatever of it may be there after all is set right by the next write.
            self.dirty.extend(stage.changed_jobs);
            return Err(error);
        }
        self.dirty.clear();
        for job in &stage.changed_jobs {
            match stage.cluster_state.reservations().get(job) {
                Some(row) => self.lock_leases().start(job, &row.source, row.lease),
                None => self.lock_leases().stop(job),
            }
            match (self.tombstones.get(job), stage.tombstones.get(job)) {
                (before, after) if before == after => {}
                (_, Some(_)) => self.date_tombstone(job, now),
                (_, None) => {
                    if let Some(since) = self.tombstone_since.remove(job) {
                        self.tombstones_by_age.remove(&(since, Arc::clone(job)));
                    }
                }
            }
        }
        // What changed besides has its lease by now, or none.
        let renewed = stage
            .renewed_leases
            .iter()
            .filter(|(job, ..)| !stage.changed_jobs.contains(job));
        for (job, source, lease) in renewed {
            self.lock_leases().start(job, source, *lease);
        }
        self.tombstones = stage.tombstones;
        Ok(AppliedDraft {
            cluster_state: stage.cluster_state,
            plugin_states: stage.plugin_states,
            changed: !stage.changed_jobs.is_empty(),
        })
    }

    /// What is left of a job's lease; `None`: it stands still, or there is none.
    pub(super) fn lease_left(&self, job: &str) -> Option<Duration> {
        self.lock_leases().remaining(job)
    }

    /// True if the store lacks something that is true.
    pub(super) fn needs_repair(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn lock_leases(&self) -> MutexGuard<'_, LeaseTable> {
        lock_leases(&self.leases)
    }
}

pub(super) fn lock_leases(leases: &SharedLeases) -> MutexGuard<'_, LeaseTable> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReservationTombstone {
    /// True if a request of this incarnation and attempt comes too late.
    pub(super) fn covers(&self, uid: &str, attempt: u64) -> bool {
        if self.job_ended {
            return *self.uid == *uid;
        }
        same_incarnation(&self.uid, uid) && attempt <= self.attempt
    }
}
