//! A group of commands, settled on a copy of the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::AdmissionLedger;
use super::confirm::{self, ConfirmItem, JobConfirmOutcome, LedgerConfirm, LedgerRelease};
use crate::engine::PolicyInForce;
use crate::engine::decide::JobAdmitter;
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{ClusterState, JobRecord, Problem, ProblemKind, RecordKind, Reservation, SortedTable};
use crate::engine::plugin_state::{PlacementEvent, PluginStates};
use crate::store::ReservationTombstone;

/// The state as the commands of a group change it, before any of it is true.
#[derive(Debug)]
pub(in crate::state) struct LedgerDraft {
    pub(in crate::state) cluster_state: ClusterState,
    /// By policy: what is known to be derived from the cluster state.
    pub(in crate::state) plugin_states: BTreeMap<Arc<str>, PluginStates>,
    pub(super) tombstones: SortedTable<Arc<ReservationTombstone>>,
    /// Jobs whose row or tombstone changed.
    pub(super) changed_jobs: BTreeSet<Arc<str>>,
    /// Leases that begin anew, where nothing else changed: job, source, lease.
    pub(super) renewed_leases: Vec<(Arc<str>, Arc<str>, Duration)>,
    /// Since 1970.
    now: Duration,
    max_rows: usize,
    default_lease: Duration,
    max_lease: Duration,
    checks: bool,
}

/// A stage that has become true.
#[derive(Debug)]
pub(in crate::state) struct AppliedDraft {
    /// The state.
    pub(in crate::state) cluster_state: ClusterState,
    /// What is derived from it, by policy.
    pub(in crate::state) plugin_states: BTreeMap<Arc<str>, PluginStates>,
    /// A row or a tombstone changed.
    pub(in crate::state) changed: bool,
}

impl LedgerDraft {
    /// A stage on a state, and what is known to be derived from it. `now`: since 1970.
    pub(in crate::state) fn new(
        ledger: &AdmissionLedger,
        cluster_state: &ClusterState,
        plugin_states: BTreeMap<Arc<str>, PluginStates>,
        now: Duration,
    ) -> Self {
        Self {
            cluster_state: cluster_state.clone(),
            plugin_states,
            tombstones: ledger.tombstones.clone(),
            changed_jobs: BTreeSet::new(),
            renewed_leases: Vec::new(),
            now,
            max_rows: ledger.limits.reservations,
            default_lease: ledger.limits.reservation_lease,
            max_lease: ledger.limits.reservation_lease_max,
            checks: ledger.checks,
        }
    }

    /// Settles a confirmation under a policy, item by item.
    ///
    /// # Errors
    /// It names a plugin that the policy does not have.
    pub(in crate::state) fn confirm(
        &mut self,
        confirm: LedgerConfirm,
        policy: &PolicyInForce,
    ) -> Result<Vec<Result<JobConfirmOutcome, Problem>>, Problem> {
        let judge = JobAdmitter::new(&policy.policy, &confirm.plugins)?;
        if !self.plugin_states.contains_key(&policy.name) {
            let derived = policy.policy.compute_plugin_states(&self.cluster_state);
            self.plugin_states.insert(Arc::clone(&policy.name), derived);
        }
        let lease = confirm.lease.unwrap_or(self.default_lease).min(self.max_lease);
        let items = (confirm.read_items)(&self.cluster_state).into_iter().enumerate();
        let settle = |(number, item): (usize, Result<ConfirmItem, Problem>)| {
            let settled = self.confirm_item(&judge, policy, lease, &item?);
            settled.map_err(|problem| problem.within(&format!("items[{number}].job")))
        };
        Ok(items.map(settle).collect())
    }

    fn confirm_item(
        &mut self,
        judge: &JobAdmitter<'_>,
        policy: &PolicyInForce,
        lease: Duration,
        item: &ConfirmItem,
    ) -> Result<JobConfirmOutcome, Problem> {
        let ConfirmItem { job, attempt, names } = item;
        let old = self.cluster_state.reservations().get(&job.name).cloned();
        let own = old.as_ref().filter(|row| row.matches_uid(&job.uid));
        if let Some(row) = own.filter(|row| *attempt < row.attempt) {
            return Ok(confirm::recorded_outcome(row));
        }
        if let Some(grave) = self.tombstones.get(&job.name)
            && grave.covers(&job.uid, *attempt)
        {
            return Ok(JobConfirmOutcome {
                job: Arc::clone(&job.name),
                verdict: confirm::ended_verdict(grave),
                reserved: own.map(|row| row.amounts.clone()).unwrap_or_default(),
            });
        }
        self.check_incarnation(job)?;
        let content = confirm::request_fingerprint(names, job);
        if let Some(row) = own.filter(|row| *attempt == row.attempt && content == row.content) {
            self.renewed_leases
                .push((Arc::clone(&row.job), Arc::clone(&row.source), row.lease));
            return Ok(confirm::recorded_outcome(row));
        }
        if old.is_none() {
            self.check_reservation_limit()?;
        }
        let Some(derived) = self.plugin_states.get_mut(&policy.name) else {
            let message = "there is nothing derived for this policy";
            return Err(Problem::new(ProblemKind::Unserved, "PLUGIN_STATE_MISSING", "", message));
        };
        let mut admission = judge.judge(&self.cluster_state, derived, job)?;
        admission.permitted |= !self.checks;
        let reserved = if admission.permitted {
            let row = Reservation {
                job: Arc::clone(&job.name),
                uid: Arc::clone(&job.uid),
                attempt: *attempt,
                queue: Arc::clone(&job.queue),
                amounts: admission.reserve.clone(),
                content,
                source: self.reporting_source(&job.name, &job.uid, &job.queue),
                confirmed: self.now,
                lease,
                policy: Arc::clone(&policy.name),
            };
            let reserved = row.amounts.clone();
            self.put_row(row);
            reserved
        } else {
            own.map(|row| row.amounts.clone()).unwrap_or_default()
        };
        Ok(JobConfirmOutcome {
            job: Arc::clone(&job.name),
            verdict: admission,
            reserved,
        })
    }

    /// Room for one more row.
    fn check_reservation_limit(&self) -> Result<(), Problem> {
        if self.cluster_state.reservations().len() < self.max_rows {
            return Ok(());
        }
        let message = format!("limit `reservations` is {}: there are as many", self.max_rows);
        let reason = "TOO_MANY_RESERVATIONS";
        Err(Problem::new(ProblemKind::Exhausted, reason, "", message))
    }

    /// Refuses a late request for another incarnation of a job that is there: it would take this one's promise.
    fn check_incarnation(&self, job: &JobRecord) -> Result<(), Problem> {
        let stored = self.cluster_state.jobs().get(&job.name).map(|stored| &stored.record);
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
    fn reporting_source(&self, job: &str, uid: &str, queue: &str) -> Arc<str> {
        let known = self.cluster_state.jobs().get(job);
        let known = known.filter(|known| same_incarnation(&known.record.uid, uid));
        let of_job = known.map(|known| &*known.source);
        let source = of_job.or_else(|| self.cluster_state.source_of(RecordKind::Queue, queue));
        source.map(Arc::clone).unwrap_or_default()
    }

    fn put_row(&mut self, row: Reservation) {
        let job = Arc::clone(&row.job);
        self.cluster_state.put_reservation(Arc::new(row));
        self.apply_to_plugin_states(&job);
    }

    fn remove_row(&mut self, job: &Arc<str>) -> Option<Arc<Reservation>> {
        let row = self.cluster_state.remove_reservation(job)?;
        self.apply_to_plugin_states(job);
        Some(row)
    }

    fn apply_to_plugin_states(&mut self, job: &Arc<str>) {
        self.changed_jobs.insert(Arc::clone(job));
        let (cluster_state, movement) = (&self.cluster_state, PlacementEvent::Reserve(job));
        // What cannot follow is worked out anew.
        self.plugin_states
            .retain(|_, derived| derived.apply(cluster_state, &movement).is_ok());
    }

    /// Takes a reservation back; the row as it was. Whatever was there, a late request for this attempt is refused.
    pub(in crate::state) fn release(&mut self, release: &LedgerRelease) -> Option<Arc<Reservation>> {
        let LedgerRelease { job, uid, attempt } = release;
        let row = self.cluster_state.reservations().get(job);
        let meant = row.is_some_and(|row| row.matches_uid(uid) && row.attempt <= *attempt);
        let released = if meant { self.remove_row(job) } else { None };
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
            let grave = ReservationTombstone {
                job: Arc::clone(job),
                uid: Arc::clone(uid),
                attempt: *attempt,
                job_ended: false,
            };
            self.tombstones.insert(Arc::clone(job), Arc::new(grave));
            self.changed_jobs.insert(Arc::clone(job));
        }
        released
    }

    /// True if what is remembered of a job guards the incarnation that is there, and this is another: there is one
    /// tombstone for each name.
    fn guards_another(&self, job: &str, uid: &str) -> bool {
        let stored = self.cluster_state.jobs().get(job).map(|stored| &stored.record.uid);
        let known = self.tombstones.get(job).map(|known| &known.uid);
        match (stored, known) {
            (Some(stored), Some(known)) => {
                !same_incarnation(known, uid) && !stored.is_empty() && same_incarnation(known, stored)
            }
            _ => false,
        }
    }

    /// True if nothing came of it.
    pub(in crate::state) fn is_unchanged(&self) -> bool {
        self.changed_jobs.is_empty() && self.renewed_leases.is_empty()
    }

    /// Ends reservations whose leases are over.
    pub(in crate::state) fn expire(&mut self, jobs: &[Arc<str>]) {
        for job in jobs {
            self.remove_row(job);
        }
    }
}
