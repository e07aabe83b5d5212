//! A group of commands, settled on a copy of the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Ledger;
use super::confirm::{self, Confirm, ConfirmItem, Confirmed, Release};
use crate::engine::PolicyInForce;
use crate::engine::decide::JobJudge;
use crate::engine::derived::{DerivedSet, Movement};
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{JobRecord, Kind, Problem, ProblemKind, Reservation, Table, View};
use crate::store::Tombstone;

/// The state as the commands of a group change it, before any of it is true.
#[derive(Debug)]
pub(in crate::state) struct Stage {
    pub(in crate::state) view: View,
    /// By policy: what is known to be derived from the View.
    pub(in crate::state) derived: BTreeMap<Arc<str>, DerivedSet>,
    pub(super) tombstones: Table<Arc<Tombstone>>,
    /// Jobs whose row or tombstone changed.
    pub(super) touched: BTreeSet<Arc<str>>,
    /// Leases that begin anew, where nothing else changed: job, source, lease.
    pub(super) renewed: Vec<(Arc<str>, Arc<str>, Duration)>,
    /// Since 1970.
    now: Duration,
    rows: usize,
    lease: Duration,
    lease_max: Duration,
    checks: bool,
}

/// A stage that has become true.
#[derive(Debug)]
pub(in crate::state) struct Settled {
    /// The state.
    pub(in crate::state) view: View,
    /// What is derived from it, by policy.
    pub(in crate::state) derived: BTreeMap<Arc<str>, DerivedSet>,
    /// A row or a tombstone changed.
    pub(in crate::state) changed: bool,
}

impl Stage {
    /// A stage on a state, and what is known to be derived from it. `now`: since 1970.
    pub(in crate::state) fn new(
        ledger: &Ledger,
        view: &View,
        derived: BTreeMap<Arc<str>, DerivedSet>,
        now: Duration,
    ) -> Self {
        Self {
            view: view.clone(),
            derived,
            tombstones: ledger.tombstones.clone(),
            touched: BTreeSet::new(),
            renewed: Vec::new(),
            now,
            rows: ledger.limits.reservations,
            lease: ledger.limits.reservation_lease,
            lease_max: ledger.limits.reservation_lease_max,
            checks: ledger.checks,
        }
    }

    /// Settles a confirmation under a policy, item by item.
    ///
    /// # Errors
    /// It names a plugin that the policy does not have.
    pub(in crate::state) fn confirm(
        &mut self,
        confirm: Confirm,
        policy: &PolicyInForce,
    ) -> Result<Vec<Result<Confirmed, Problem>>, Problem> {
        let judge = JobJudge::new(&policy.policy, &confirm.plugins)?;
        if !self.derived.contains_key(&policy.name) {
            let derived = policy.policy.derive(&self.view);
            self.derived.insert(Arc::clone(&policy.name), derived);
        }
        let lease = confirm.lease.unwrap_or(self.lease).min(self.lease_max);
        let items = (confirm.read)(&self.view).into_iter().enumerate();
        let settle = |(number, item): (usize, Result<ConfirmItem, Problem>)| {
            let settled = self.item(&judge, policy, lease, &item?);
            settled.map_err(|problem| problem.within(&format!("items[{number}].job")))
        };
        Ok(items.map(settle).collect())
    }

    fn item(
        &mut self,
        judge: &JobJudge<'_>,
        policy: &PolicyInForce,
        lease: Duration,
        item: &ConfirmItem,
    ) -> Result<Confirmed, Problem> {
        let ConfirmItem { job, attempt, names } = item;
        let old = self.view.reservations().get(&job.name).cloned();
        let own = old.as_ref().filter(|row| row.is_of(&job.uid));
        if let Some(row) = own.filter(|row| *attempt < row.attempt) {
            return Ok(confirm::recorded(row));
        }
        if let Some(grave) = self.tombstones.get(&job.name)
            && grave.covers(&job.uid, *attempt)
        {
            return Ok(Confirmed {
                job: Arc::clone(&job.name),
                admission: confirm::over(grave),
                reserved: own.map(|row| row.amounts.clone()).unwrap_or_default(),
            });
        }
        self.same_job(job)?;
        let content = confirm::content(names, job);
        if let Some(row) = own.filter(|row| *attempt == row.attempt && content == row.content) {
            self.renewed
                .push((Arc::clone(&row.job), Arc::clone(&row.source), row.lease));
            return Ok(confirm::recorded(row));
        }
        if old.is_none() {
            self.room()?;
        }
        let Some(derived) = self.derived.get_mut(&policy.name) else {
            let message = "there is nothing derived for this policy";
            return Err(Problem::new(ProblemKind::Unserved, "NOT_DERIVED", "", message));
        };
        let mut admission = judge.job(&self.view, derived, job)?;
        admission.permitted |= !self.checks;
        let reserved = if admission.permitted {
            let row = Reservation {
                job: Arc::clone(&job.name),
                uid: Arc::clone(&job.uid),
                attempt: *attempt,
                queue: Arc::clone(&job.queue),
                amounts: admission.reserve.clone(),
                content,
                source: self.source(&job.name, &job.uid, &job.queue),
                confirmed: self.now,
                lease,
                policy: Arc::clone(&policy.name),
            };
            let reserved = row.amounts.clone();
            self.put(row);
            reserved
        } else {
            own.map(|row| row.amounts.clone()).unwrap_or_default()
        };
        Ok(Confirmed {
            job: Arc::clone(&job.name),
            admission,
            reserved,
        })
    }

    /// Room for one more row.
    fn room(&self) -> Result<(), Problem> {
        if self.view.reservations().len() < self.rows {
            return Ok(());
        }
        let message = format!("limit `reservations` is {}: there are as many", self.rows);
        let reason = "TOO_MANY_RESERVATIONS";
        Err(Problem::new(ProblemKind::Exhausted, reason, "", message))
    }

    /// Refuses a late request for another incarnation of a job that is there: it would take this one's promise.
    fn same_job(&self, job: &JobRecord) -> Result<(), Problem> {
        let stored = self.view.jobs().get(&job.name).map(|stored| &stored.record);
        match stored.filter(|stored| !same_incarnation(&stored.uid, &job.uid)) {
            Some(stored) => {
                let message = format!(
                    "the job `{}` that is there is another incarnation, `{}`",
                    job.name, stored.uid
                );
                Err(Problem::new(ProblemKind::NotFound, "UID_MISMATCH", "uid", message))
            }
            None => Ok(()),
        }
    }

    /// Who will tell of the job: the owner of its record, else of its queue's.
    fn source(&self, job: &str, uid: &str, queue: &str) -> Arc<str> {
        let known = self.view.jobs().get(job);
        let known = known.filter(|known| same_incarnation(&known.record.uid, uid));
        let of_job = known.map(|known| &*known.source);
        let source = of_job.or_else(|| self.view.source_of(Kind::Queue, queue));
        source.map(Arc::clone).unwrap_or_default()
    }

    fn put(&mut self, row: Reservation) {
        let job = Arc::clone(&row.job);
        self.view.put_reservation(Arc::new(row));
        self.follow(&job);
    }

    fn remove(&mut self, job: &Arc<str>) -> Option<Arc<Reservation>> {
        let row = self.view.remove_reservation(job)?;
        self.follow(job);
        Some(row)
    }

    fn follow(&mut self, job: &Arc<str>) {
        self.touched.insert(Arc::clone(job));
        let (view, movement) = (&self.view, Movement::Reserve(job));
        // What cannot follow is worked out anew.
        self.derived
            .retain(|_, derived| derived.follow(view, &movement).is_ok());
    }

    /// Takes a reservation back; the row as it was. Whatever was there, a late request for this attempt is refused.
    pub(in crate::state) fn release(&mut self, release: &Release) -> Option<Arc<Reservation>> {
        let Release { job, uid, attempt } = release;
        let row = self.view.reservations().get(job);
        let meant = row.is_some_and(|row| row.is_of(uid) && row.attempt <= *attempt);
        let released = if meant { self.remove(job) } else { None };
        // The row that went says which incarnation is meant.
        let uid = match &released {
            Some(row) if uid.is_empty() => &row.uid,
            _ => uid,
        };
        if released.is_none() && self.guards_another(job, uid) {
            return None;
        }
        let known = self.tombstones.get(job);
        let covered = known.is_some_and(|known| known.covers(uid, *attempt));
        if !covered {
            let grave = Tombstone {
                job: Arc::clone(job),
                uid: Arc::clone(uid),
                attempt: *attempt,
                job_ended: false,
            };
            self.tombstones.insert(Arc::clone(job), Arc::new(grave));
            self.touched.insert(Arc::clone(job));
        }
        released
    }

    /// True if what is remembered of a job guards the incarnation that is there, and this is another: there is one
    /// tombstone for each name.
    fn guards_another(&self, job: &str, uid: &str) -> bool {
        let stored = self.view.jobs().get(job).map(|stored| &stored.record.uid);
        let known = self.tombstones.get(job).map(|known| &known.uid);
        match (stored, known) {
            (Some(stored), Some(known)) => {
                !same_incarnation(known, uid) && !stored.is_empty() && same_incarnation(known, stored)
            }
            _ => false,
        }
    }

    /// True if nothing came of it.
    pub(in crate::state) fn is_idle(&self) -> bool {
        self.touched.is_empty() && self.renewed.is_empty()
    }

    /// Ends reservations whose leases are over.
    pub(in crate::state) fn expire(&mut self, jobs: &[Arc<str>]) {
        for job in jobs {
            self.remove(job);
        }
    }
}
