//! Draft of a group of commands: a copy of the state that the commands change, and how it becomes the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::AdmissionLedger;
use super::assumptions::AssumptionDraft;
use super::confirm::{self, ConfirmItem, JobConfirmOutcome, LedgerConfirm, LedgerRelease};
use crate::store::{ReservationTombstone, StoreError, StoreWrite};
use pumice_engine::PolicyInForce;
use pumice_engine::decide::JobAdmitter;
use pumice_engine::model::reservation::same_incarnation;
use pumice_engine::model::{ClusterState, ErrorCode, JobRecord, Problem, RecordKind, Reservation, SortedTable};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::plugin_state::{PlacementEvent, PluginStates};

/// State as the commands of a group change it, before the store has it.
#[derive(Debug)]
pub(crate) struct LedgerDraft {
    pub(crate) cluster_state: ClusterState,
    /// Plugin states of the cluster state that are known already, by policy.
    pub(crate) plugin_states: BTreeMap<Arc<str>, PluginStates>,
    tombstones: SortedTable<Arc<ReservationTombstone>>,
    /// Jobs whose row or tombstone changed.
    changed_jobs: BTreeSet<Arc<str>>,
    /// Leases that start again although nothing else changed: job, source, lease.
    renewed_leases: Vec<(Arc<str>, Arc<str>, Duration)>,
    /// Time since 1970.
    now: Duration,
    max_rows: usize,
    default_lease: Duration,
    max_lease: Duration,
    checks: bool,
}

impl LedgerDraft {
    /// Draft on a cluster state and its known plugin states. `now`: time since 1970.
    pub(crate) fn new(
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

    /// Confirms jobs under a policy, item by item.
    ///
    /// # Errors
    /// The request names a plugin that the policy does not have.
    pub(crate) fn confirm(
        &mut self,
        confirm: &mut LedgerConfirm,
        policy: &PolicyInForce,
    ) -> Result<Vec<Result<JobConfirmOutcome, Problem>>, Problem> {
        let judge = JobAdmitter::new(&policy.policy, &confirm.plugins)?;
        if !self.plugin_states.contains_key(&policy.name) {
            let plugin_states = policy.policy.compute_plugin_states(&self.cluster_state);
            self.plugin_states.insert(Arc::clone(&policy.name), plugin_states);
        }
        let lease = confirm.lease.unwrap_or(self.default_lease).min(self.max_lease);
        let now = confirm.now;
        let items = confirm
            .items
            .read(&self.cluster_state, policy.policy.compatibility())
            .iter()
            .enumerate();
        let judge = (&judge, now);
        let confirm_one = |(number, item): (usize, &Result<ConfirmItem, Problem>)| {
            let item = item.as_ref().map_err(Problem::clone)?;
            let outcome = self.confirm_item(judge, policy, lease, item);
            outcome.map_err(|problem| problem.within(&format!("items[{number}].job")))
        };
        Ok(items.map(confirm_one).collect())
    }

    fn confirm_item(
        &mut self,
        (judge, now): (&JobAdmitter<'_>, Option<DecisionTime>),
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
        if let Some(tombstone) = self.tombstones.get(&job.name)
            && tombstone.covers(&job.uid, *attempt)
        {
            return Ok(JobConfirmOutcome {
                job: Arc::clone(&job.name),
                verdict: confirm::ended_verdict(tombstone),
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
        let Some(plugin_states) = self.plugin_states.get_mut(&policy.name) else {
            let message = "the plugin states of this policy are missing";
            return Err(Problem::new(ErrorCode::PluginStateMissing, "", message));
        };
        let mut admission = judge.judge(&self.cluster_state, plugin_states, now, job)?;
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

    /// Checks that one more row may be added.
    fn check_reservation_limit(&self) -> Result<(), Problem> {
        if self.cluster_state.reservations().len() < self.max_rows {
            return Ok(());
        }
        let message = format!(
            "limit `reservations` is {}: the ledger holds no more reservations",
            self.max_rows
        );
        let reason = ErrorCode::LimitExceeded;
        Err(Problem::new(reason, "", message))
    }

    /// Rejects a late request for another incarnation of an existing job: it would take the existing one's reservation.
    fn check_incarnation(&self, job: &JobRecord) -> Result<(), Problem> {
        let stored = self.cluster_state.jobs().get(&job.name).map(|stored| &stored.record);
        match stored.filter(|stored| !same_incarnation(&stored.uid, &job.uid)) {
            Some(stored) => {
                let message = format!(
                    "the existing job `{}` is another incarnation, `{}`",
                    job.name, stored.uid
                );
                Err(Problem::new(ErrorCode::UidMismatch, "uid", message))
            }
            None => Ok(()),
        }
    }

    /// Source that will report the job: the owner of its record, else of its queue's record.
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
        let (cluster_state, event) = (&self.cluster_state, [PlacementEvent::Reserve(job)]);
        // A plugin state that cannot apply the event is dropped, and computed again on its next use.
        self.plugin_states
            .retain(|_, plugin_states| plugin_states.apply(cluster_state, &event).is_ok());
    }

    /// Releases a reservation. Returns the row as it was. Whether there was one or not, later requests for this attempt
    /// are rejected.
    pub(crate) fn release(&mut self, release: &LedgerRelease) -> Option<Arc<Reservation>> {
        let LedgerRelease { job, uid, attempt } = release;
        let row = self.cluster_state.reservations().get(job);
        let meant = row.is_some_and(|row| row.matches_uid(uid) && row.attempt <= *attempt);
        let released = if meant { self.remove_row(job) } else { None };
        // The removed row names the incarnation.
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
            let tombstone = ReservationTombstone {
                job: Arc::clone(job),
                uid: Arc::clone(uid),
                attempt: *attempt,
                job_ended: false,
            };
            self.tombstones.insert(Arc::clone(job), Arc::new(tombstone));
            self.changed_jobs.insert(Arc::clone(job));
        }
        released
    }

    /// True if the job's tombstone guards its existing incarnation and `uid` is another: each name has only one
    /// tombstone.
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

    /// True if a row or a tombstone changed.
    pub(crate) fn changes_jobs(&self) -> bool {
        !self.changed_jobs.is_empty()
    }

    /// Follows assumptions that were drafted in the cluster state: the next query computes the plugin states again.
    pub(crate) fn note_assumptions(&mut self, assumptions: &AssumptionDraft) {
        if !assumptions.is_empty() {
            self.plugin_states.clear();
        }
    }

    /// True if the draft changes nothing.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed_jobs.is_empty() && self.renewed_leases.is_empty()
    }

    /// Ends expired reservations.
    pub(crate) fn expire(&mut self, jobs: &[Arc<str>]) {
        for job in jobs {
            self.remove_row(job);
        }
    }
}

impl AdmissionLedger {
    /// Appends a draft and all pending repairs to the log as one entry. `others`: writes of other modules that go with it.
    /// Without any write the log is only asked whether the draft is of its newest head. Returns the draft without its
    /// tombstones: its cluster state and its plugin states are those of the next snapshot.
    ///
    /// # Errors
    /// Others have appended first, or the store failed: nothing of the draft has happened.
    pub(crate) fn write_draft(
        &mut self,
        mut draft: LedgerDraft,
        now: Duration,
        others: Vec<StoreWrite>,
    ) -> Result<LedgerDraft, StoreError> {
        // Whoever follows the log counts a renewed lease from its entry on.
        let renewed = draft.renewed_leases.iter().filter(|_| self.log.is_shared());
        let renewed = renewed.map(|(job, ..)| job);
        let jobs: BTreeSet<&Arc<str>> = self.dirty.iter().chain(&draft.changed_jobs).chain(renewed).collect();
        let mut writes = others;
        writes.extend(jobs.into_iter().map(|job| StoreWrite::Job {
            job: Arc::clone(job),
            reservation: draft.cluster_state.reservations().get(job).cloned(),
            tombstone: draft.tombstones.get(job).cloned(),
        }));
        if let Err(error) = self.log.append_group(&writes) {
            // The next write repairs whatever of this one reached the store.
            if self.log.needs_repairs() {
                self.dirty.extend(draft.changed_jobs);
            }
            return Err(error);
        }
        self.dirty.clear();
        for job in &draft.changed_jobs {
            match draft.cluster_state.reservations().get(job) {
                Some(row) => self.leases.with(|leases| leases.start(job, &row.source, row.lease)),
                None => self.leases.with(|leases| leases.stop(job)),
            }
            match (self.tombstones.get(job), draft.tombstones.get(job)) {
                (before, after) if before == after => {}
                (_, Some(_)) => self.date_tombstone(job, now),
                (_, None) => {
                    if let Some(since) = self.tombstone_since.remove(job) {
                        self.tombstones_by_age.remove(&(since, Arc::clone(job)));
                    }
                }
            }
        }
        // The other changed jobs have their lease already, or none.
        let renewed = draft
            .renewed_leases
            .iter()
            .filter(|(job, ..)| !draft.changed_jobs.contains(job));
        for (job, source, lease) in renewed {
            self.leases.with(|leases| leases.start(job, source, *lease));
        }
        self.tombstones = std::mem::take(&mut draft.tombstones);
        Ok(draft)
    }
}
