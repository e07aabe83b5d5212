//! The admission ledger: what jobs were promised, kept by the writer and shown in every World.
//!
//! A row lives in the View ([`View::reservations`]), so that every question counts it; what only the writer needs,
//! tombstones and leases, is kept here. A group of commands is settled on a copy of the View, written to the store in
//! one go, and only then becomes the state: after a failed write nothing has happened.

mod confirm;
mod leases;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use confirm::{Confirm, ConfirmItem, Confirmation, Confirmed, Reading, Release, Standing};
pub(super) use leases::Leases;
pub(super) use stage::{Settled, Stage};

use super::limits::Limits;
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{JobPhase, JobRecord, Reservation, Table, View};
use crate::store::{Durability, Kept, Store, StoreError, Tombstone, Write};

/// Time passes twice a second; after so long the writer sees to it itself.
const OVERDUE: Duration = Duration::from_secs(2);

/// Leases, which listings read while the writer goes on.
pub(super) type SharedLeases = Arc<Mutex<Leases>>;

/// What the writer keeps of the ledger besides the rows.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    store: Box<dyn Store>,
    tombstones: Table<Arc<Tombstone>>,
    /// By age: since when each tombstone stands.
    graves: BTreeSet<(Duration, Arc<str>)>,
    since: BTreeMap<Arc<str>, Duration>,
    /// When it last let time pass.
    looked: Duration,
    leases: SharedLeases,
    /// Jobs of which the store may hold something else than is true.
    dirty: BTreeSet<Arc<str>>,
    checks: bool,
}

impl Ledger {
    /// A ledger over a store, with what is kept there put into the View. Every lease begins anew.
    pub(super) fn open(
        limits: &Limits,
        store: Box<dyn Store>,
        kept: &Kept,
        leases: &SharedLeases,
        view: &mut View,
    ) -> Self {
        let mut ledger = Self {
            limits: limits.clone(),
            store,
            tombstones: Table::default(),
            graves: BTreeSet::new(),
            since: BTreeMap::new(),
            looked: Duration::ZERO,
            leases: Arc::clone(leases),
            dirty: BTreeSet::new(),
            checks: true,
        };
        for row in &kept.rows {
            lock(leases).start(&row.job, &row.source, row.lease);
            view.put_reservation(Arc::clone(row));
        }
        for tombstone in &kept.tombstones {
            ledger
                .tombstones
                .insert(Arc::clone(&tombstone.job), Arc::clone(tombstone));
            ledger.bury(&tombstone.job, Duration::ZERO);
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
    pub(super) fn job_moved(&mut self, view: &mut View, before: Option<&JobRecord>, after: Option<&JobRecord>) -> bool {
        let Some(name) = after.or(before).map(|job| &job.name) else {
            return false;
        };
        if let (Some(after), Some(grave)) = (after, self.tombstones.get(name))
            && grave.job_ended
            && grave.uid == after.uid
            && after.phase != JobPhase::Completed
        {
            self.dig_up(&Arc::clone(name));
        }
        let Some(row) = view.reservations().get(name).cloned() else {
            return false;
        };
        let was = before.is_some_and(|before| row.is_of(&before.uid));
        let ended = match after {
            Some(after) if row.is_of(&after.uid) => after.phase == JobPhase::Completed,
            // Another incarnation in its place; or one that is older than the row, if this one was never seen.
            Some(_) | None => was,
        };
        if ended {
            view.remove_reservation(name);
            self.end(&row);
        }
        ended
    }

    /// A row that ended with its job. The store is told with the next write.
    fn end(&mut self, row: &Reservation) {
        self.leases().stop(&row.job);
        self.dirty.insert(Arc::clone(&row.job));
        // Without a name for the incarnation the next job of this name could not be told from it.
        if !row.uid.is_empty() {
            let grave = Tombstone {
                job: Arc::clone(&row.job),
                uid: Arc::clone(&row.uid),
                attempt: row.attempt,
                job_ended: true,
            };
            self.tombstones.insert(Arc::clone(&row.job), Arc::new(grave));
            self.bury(&row.job, self.looked);
        }
    }

    fn dig_up(&mut self, job: &Arc<str>) {
        self.tombstones.remove(job);
        if let Some(since) = self.since.remove(job) {
            self.graves.remove(&(since, Arc::clone(job)));
        }
        self.dirty.insert(Arc::clone(job));
    }

    /// Notes since when a tombstone stands.
    fn bury(&mut self, job: &Arc<str>, now: Duration) {
        if let Some(since) = self.since.insert(Arc::clone(job), now) {
            self.graves.remove(&(since, Arc::clone(job)));
        }
        self.graves.insert((now, Arc::clone(job)));
    }

    /// Forgets tombstones that are old, or too many.
    fn forget(&mut self, now: Duration) {
        while let Some((since, job)) = self.graves.first() {
            let old = now.saturating_sub(*since) > self.limits.tombstone_age;
            if !old && self.graves.len() <= self.limits.reservation_tombstones {
                break;
            }
            let job = Arc::clone(job);
            self.dig_up(&job);
        }
    }

    /// True if nobody let time pass for long: whoever does so finds no room in a queue that is always full.
    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        now.saturating_sub(self.looked) >= OVERDUE
    }

    /// Lets time pass: leases run, old tombstones go. The jobs whose leases are over, for [`Stage::expire`].
    pub(super) fn pass(&mut self, now: Duration, heard: BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.looked = self.looked.max(now);
        self.forget(now);
        let mut leases = self.leases();
        leases.pass(now, heard);
        leases.over()
    }

    /// Writes what a stage changed, and what the store does not know yet, in one go. `others`: with it, what is not of
    /// this ledger.
    ///
    /// # Errors
    /// The store failed: nothing of the stage has happened.
    pub(super) fn commit(&mut self, stage: Stage, now: Duration, others: Vec<Write>) -> Result<Settled, StoreError> {
        let jobs: BTreeSet<&Arc<str>> = self.dirty.iter().chain(&stage.touched).collect();
        let mut writes = others;
        writes.extend(jobs.into_iter().map(|job| Write::Job {
            job: Arc::clone(job),
            row: stage.view.reservations().get(job).cloned(),
            tombstone: stage.tombstones.get(job).cloned(),
        }));
        if !writes.is_empty()
            && let Err(error) = self.store.write(&writes)
        {
            // Whatever of it may be there after all is set right by the next write.
            self.dirty.extend(stage.touched);
            return Err(error);
        }
        self.dirty.clear();
        for job in &stage.touched {
            match stage.view.reservations().get(job) {
                Some(row) => self.leases().start(job, &row.source, row.lease),
                None => self.leases().stop(job),
            }
            match (self.tombstones.get(job), stage.tombstones.get(job)) {
                (before, after) if before == after => {}
                (_, Some(_)) => self.bury(job, now),
                (_, None) => {
                    if let Some(since) = self.since.remove(job) {
                        self.graves.remove(&(since, Arc::clone(job)));
                    }
                }
            }
        }
        // What changed besides has its lease by now, or none.
        let renewed = stage.renewed.iter().filter(|(job, ..)| !stage.touched.contains(job));
        for (job, source, lease) in renewed {
            self.leases().start(job, source, *lease);
        }
        self.tombstones = stage.tombstones;
        Ok(Settled {
            view: stage.view,
            derived: stage.derived,
            changed: !stage.touched.is_empty(),
        })
    }

    /// What is left of a job's lease; `None`: it stands still, or there is none.
    pub(super) fn left(&self, job: &str) -> Option<Duration> {
        self.leases().left(job)
    }

    /// True if the store lacks something that is true.
    pub(super) fn owes(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        lock(&self.leases)
    }
}

pub(super) fn lock(leases: &SharedLeases) -> MutexGuard<'_, Leases> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tombstone {
    /// True if a request of this incarnation and attempt comes too late.
    pub(super) fn covers(&self, uid: &str, attempt: u64) -> bool {
        if self.job_ended {
            return *self.uid == *uid;
        }
        same_incarnation(&self.uid, uid) && attempt <= self.attempt
    }
}
