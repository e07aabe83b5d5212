//! CONFIRM in a session: the jobs that it enqueued are promised what they need, in one commit of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::registry::{RecordedResult, SessionRegistry, SessionState};
use super::steps::SteppedSession;
use crate::SharedState;
use crate::error::StateError;
use crate::ledger::{ConfirmItem, ConfirmItems, ConfirmOutcome, ConfirmReader, JobConfirmOutcome, LedgerConfirm};
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};
use pumice_engine::model::reservation::same_incarnation;
use pumice_engine::model::{ClusterState, Problem, ProblemKind};

/// Request that a session's jobs be confirmed.
pub struct SessionConfirm {
    /// Plugins that judge; empty: those of the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// Lease of reservations that are not used; `None`: the default of the limits.
    pub lease: Option<Duration>,
    /// Time of the decision in seconds since 1970; `None`: the request gives none.
    pub now: Option<i64>,
    /// Items to confirm; `None`: the jobs that the session has enqueued and not confirmed yet, in that order.
    pub read_items: Option<ConfirmReader>,
}

impl std::fmt::Debug for SessionConfirm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SessionConfirm");
        shown.field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl SessionRegistry {
    /// Applies changes and confirms. Jobs that are rejected leave the session: that is one more change, numbered after
    /// the others.
    fn confirm(
        &self,
        name: &str,
        after: u64,
        changes: &[SessionChange],
        confirm: SessionConfirm,
        write: impl FnOnce(LedgerConfirm) -> Result<ConfirmOutcome, StateError>,
    ) -> Result<(SteppedSession, Arc<ConfirmOutcome>), StateError> {
        let busy = self.find(name)?;
        let session = Arc::clone(&busy.0);
        if session.revision.number == 0 {
            let message = "the session is on a cluster of its own; CONFIRM writes to shared state";
            let problem = Problem::new(ProblemKind::Invalid, "CONFIRM_INLINE", "mode", message);
            return Err(StateError::QueryRejected { problem });
        }
        let _changing = self.claim_open(&session)?;
        let inner = session.inner.load_full();
        let applied = inner.applied;
        let last = after.saturating_add(changes.len() as u64).saturating_add(1);
        if after > applied {
            return Err(StateError::SequenceGap { applied, after });
        }
        let recorded = inner.recorded_result.clone().filter(|_| last == applied);
        if let Some(result) = recorded.and_then(|result| result.downcast::<ConfirmOutcome>().ok()) {
            return Ok((
                SteppedSession::new(&inner, busy, ChangeOutcome::default(), true),
                result,
            ));
        }
        if last <= applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last });
        }
        self.check_changes(&session, last)?;
        let (mut cycle, mut outcome, repeated) = self.cycle_after(&session, &inner, after, changes)?;
        let SessionConfirm {
            plugins,
            lease,
            now,
            read_items: read,
        } = confirm;
        let all = read.is_none();
        // Checked before the write: after it, nothing may fail.
        self.check_growth(&session, cycle.bytes())?;
        let done = write(LedgerConfirm {
            policy: Arc::clone(&session.policy.name),
            profile: Arc::clone(&session.policy.profile),
            plugins,
            lease,
            now,
            items: ConfirmItems::Unread(read.unwrap_or_else(|| read_enqueued_jobs(&cycle))),
        })?;
        let (permitted, rejected) = verdicts(&done, all.then(|| cycle.enqueued()));
        let resolved = cycle.resolve_enqueued(&permitted, &rejected);
        let resolved = resolved.map_err(|problem| StateError::ChangeRejected { problem, applied })?;
        outcome.queues.extend(resolved.queues);
        let done = Arc::new(done);
        let next = Arc::new(SessionState {
            recorded_result: Some(Arc::clone(&done) as RecordedResult),
            cycle,
            applied: last,
        });
        self.record_bytes(&session, next.cycle.bytes().saturating_add(done.held_bytes()));
        session.inner.store(Arc::clone(&next));
        Ok((SteppedSession::new(&next, busy, outcome, repeated), done))
    }
}

/// Jobs that the ledger permitted, and jobs that it rejected; only those in `enqueued` if it is given.
fn verdicts(done: &ConfirmOutcome, enqueued: Option<&[Arc<str>]>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let said = done.items.iter().flatten();
    let (permitted, rejected): (Vec<_>, Vec<_>) = said.partition(|item| item.verdict.permitted);
    let jobs = |items: Vec<&JobConfirmOutcome>| -> Vec<Arc<str>> {
        items.into_iter().map(|item| Arc::clone(&item.job)).collect()
    };
    let permitted = jobs(permitted);
    let rejected = match enqueued {
        Some(enqueued) => {
            let permitted_jobs: BTreeSet<&Arc<str>> = permitted.iter().collect();
            enqueued
                .iter()
                .filter(|job| !permitted_jobs.contains(job))
                .cloned()
                .collect()
        }
        None => jobs(rejected),
    };
    (permitted, rejected)
}

/// Reader of the jobs that a cycle has enqueued, as the newest state has them.
fn read_enqueued_jobs(cycle: &SchedulingCycle) -> ConfirmReader {
    let asked: Vec<(Arc<str>, Arc<str>)> = cycle
        .enqueued()
        .iter()
        .map(|name| {
            let job = cycle.cluster_state().jobs().get(name);
            let uid = job.map(|job| Arc::clone(&job.record.uid));
            (Arc::clone(name), uid.unwrap_or_default())
        })
        .collect();
    Box::new(move |cluster_state: &ClusterState| {
        let numbered = asked.iter().enumerate();
        numbered
            .map(|(number, (name, uid))| confirm_item(cluster_state, number, name, uid))
            .collect()
    })
}

/// Item for a job as the newest state has it, with the attempt that its reservation has.
fn confirm_item(
    cluster_state: &ClusterState,
    number: usize,
    name: &Arc<str>,
    uid: &str,
) -> Result<ConfirmItem, Problem> {
    let stored = cluster_state.jobs().get(name);
    let promised = cluster_state
        .reservations()
        .get(name)
        .filter(|row| row.matches_uid(uid));
    if let Some(stored) = stored.filter(|stored| same_incarnation(&stored.record.uid, uid)) {
        Ok(ConfirmItem {
            job: Arc::new(stored.record.clone()),
            attempt: promised.map_or(0, |row| row.attempt),
            names: Arc::clone(cluster_state.resources()),
        })
    } else {
        let message = format!("job `{name}` no longer exists");
        let field = format!("items[{number}].job");
        Err(Problem::new(ProblemKind::NotFound, "JOB_NOT_FOUND", field, message))
    }
}

impl SharedState {
    /// Confirms in a session. Blocks: call it where blocking is allowed. A retry gets the recorded outcome. `before_wait`
    /// is called before it waits for the writer.
    ///
    /// # Errors
    /// The errors of [`Self::step_session`] and [`Self::confirm`]; nothing was applied.
    pub fn confirm_session(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
        confirm: SessionConfirm,
        before_wait: impl FnOnce(),
    ) -> Result<(SteppedSession, Arc<ConfirmOutcome>), StateError> {
        let write = |confirm| {
            before_wait();
            self.confirm_blocking(confirm)
        };
        self.sessions.confirm(session, after, changes, confirm, write)
    }
}
