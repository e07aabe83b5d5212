//! Admission ledger: amounts reserved for jobs. The writer owns it, and every snapshot shows it. For example, a job
//! that was permitted with 8 GPUs has a reservation of 8; other jobs cannot use them before its tasks start.
//!
//! A reservation is stored in the cluster state ([`ClusterState::reservations`]), so every query includes it.
//! Tombstones and leases, which only the writer needs, are stored here. The commands of a group are applied to a draft
//! ([`LedgerDraft`]), the draft is written to the store at once, and only then becomes the state. After a failed write
//! nothing has happened.

pub(crate) mod assumptions;
mod confirm;
mod draft;
mod leases;
mod replay;
mod reservations;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use confirm::{
    ConfirmItem, ConfirmItems, ConfirmOutcome, ConfirmReader, JobConfirmOutcome, LedgerConfirm, LedgerRelease,
    ReservationStatus,
};
pub(crate) use draft::LedgerDraft;
pub(crate) use leases::LeaseTable;

use crate::limits::StateLimits;
use crate::store::{Durability, LedgerLog, ReservationTombstone, StoredState};
use pumice_engine::model::reservation::same_incarnation;
use pumice_engine::model::{ClusterState, JobPhase, JobRecord, Reservation, SortedTable};
use pumice_engine::short_lock::ShortLock;

/// The clock is read twice a second. After this further delay the writer reads it itself.
const OVERDUE: Duration = Duration::from_secs(2);

/// Leases, which listings read while the writer changes them.
pub(crate) type SharedLeases = Arc<ShortLock<LeaseTable>>;

/// Part of the ledger that only the writer needs: everything but the rows.
#[derive(Debug)]
pub(crate) struct AdmissionLedger {
    limits: StateLimits,
    log: LedgerLog,
    tombstones: SortedTable<Arc<ReservationTombstone>>,
    /// Tombstones by age: time of their creation, and job.
    tombstones_by_age: BTreeSet<(Duration, Arc<str>)>,
    tombstone_since: BTreeMap<Arc<str>, Duration>,
    /// Time of the last look at the clock.
    last_check: Duration,
    leases: SharedLeases,
    /// Jobs for which the store may differ from memory.
    dirty: BTreeSet<Arc<str>>,
    checks: bool,
}

impl AdmissionLedger {
    /// Opens a ledger over a log with this content, and puts its reservations into the cluster state. Every lease starts again.
    pub(crate) fn open(
        limits: &StateLimits,
        log: LedgerLog,
        stored_state: &StoredState,
        leases: &SharedLeases,
        cluster_state: &mut ClusterState,
    ) -> Self {
        let mut ledger = Self {
            limits: limits.clone(),
            log,
            tombstones: SortedTable::default(),
            tombstones_by_age: BTreeSet::new(),
            tombstone_since: BTreeMap::new(),
            last_check: Duration::ZERO,
            leases: Arc::clone(leases),
            dirty: BTreeSet::new(),
            checks: true,
        };
        for row in &stored_state.reservations {
            leases.with(|leases| leases.start(&row.job, &row.source, row.lease));
            cluster_state.put_reservation(Arc::clone(row));
        }
        for tombstone in &stored_state.tombstones {
            ledger
                .tombstones
                .insert(Arc::clone(&tombstone.job), Arc::clone(tombstone));
            ledger.date_tombstone(&tombstone.job, Duration::ZERO);
        }
        ledger
    }

    /// Permits every request. Tests use this to prove that they notice a broken promise.
    #[cfg(any(test, feature = "test-doors"))]
    pub(crate) fn without_checks(mut self, without: bool) -> Self {
        self.checks = !without;
        self
    }

    /// Durability of permits.
    pub(crate) fn durability(&self) -> Durability {
        self.log.durability()
    }

    /// Log, for entries that do not belong to the ledger.
    pub(crate) fn log(&mut self) -> &mut LedgerLog {
        &mut self.log
    }

    /// Handles a job's record that was put, replaced or removed. True if that ended the job's reservation.
    pub(crate) fn job_changed(
        &mut self,
        cluster_state: &mut ClusterState,
        before: Option<&JobRecord>,
        after: Option<&JobRecord>,
    ) -> bool {
        let Some(name) = after.or(before).map(|job| &job.name) else {
            return false;
        };
        if let (Some(after), Some(tombstone)) = (after, self.tombstones.get(name))
            && tombstone.job_ended
            && tombstone.uid == after.uid
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
            // Another incarnation replaces the job. If the row's incarnation was never seen, `after` may be older than
            // the row.
            Some(_) | None => was,
        };
        if ended {
            cluster_state.remove_reservation(name);
            self.end_with_job(&row);
        }
        ended
    }

    /// Ends the reservations of a forgotten source: no other source reports their jobs.
    pub(crate) fn forget_source(&mut self, cluster_state: &mut ClusterState, source: &str) {
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

    /// Ends a row with its job. The next write removes it from the store.
    fn end_with_job(&mut self, row: &Reservation) {
        self.leases.with(|leases| leases.stop(&row.job));
        self.dirty.insert(Arc::clone(&row.job));
        // Without a uid, the next job of this name could not be told from this one.
        if !row.uid.is_empty() {
            let tombstone = ReservationTombstone {
                job: Arc::clone(&row.job),
                uid: Arc::clone(&row.uid),
                attempt: row.attempt,
                job_ended: true,
            };
            self.tombstones.insert(Arc::clone(&row.job), Arc::new(tombstone));
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

    /// Records when a tombstone was created.
    fn date_tombstone(&mut self, job: &Arc<str>, now: Duration) {
        if let Some(since) = self.tombstone_since.insert(Arc::clone(job), now) {
            self.tombstones_by_age.remove(&(since, Arc::clone(job)));
        }
        self.tombstones_by_age.insert((now, Arc::clone(job)));
    }

    /// Drops tombstones that are too old or too many.
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

    /// True if the clock was not read for too long. This happens if the command queue is always full.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_check) >= OVERDUE
    }

    /// Advances the clock: leases run, and old tombstones go. Returns the jobs with expired leases, for
    /// [`LedgerDraft::expire`].
    pub(crate) fn advance_clock(&mut self, now: Duration, heard: BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.last_check = self.last_check.max(now);
        self.expire_tombstones(now);
        self.leases.with(|leases| {
            leases.advance_clock(now, heard);
            leases.expired()
        })
    }

    /// Time left of the lease of a job's reservation; `None`: the lease is paused, or the job has none.
    pub(crate) fn lease_left(&self, job: &str) -> Option<Duration> {
        self.leases.with(|leases| leases.remaining(job))
    }

    /// True if the store may differ from memory.
    pub(crate) fn needs_repair(&self) -> bool {
        !self.dirty.is_empty()
    }
}

impl ReservationTombstone {
    /// True if a request of this incarnation and attempt comes too late.
    pub(crate) fn covers(&self, uid: &str, attempt: u64) -> bool {
        if self.job_ended {
            return *self.uid == *uid;
        }
        same_incarnation(&self.uid, uid) && attempt <= self.attempt
    }
}
