//! CONFIRM in a session: one commit of the ledger reserves resources for all jobs that the session enqueued.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::query::WeighedResult;
use super::steps::SteppedSession;
use super::transaction::SessionTransaction;
use crate::SharedState;
use crate::error::StateError;
use crate::ledger::{ConfirmItem, ConfirmItems, ConfirmOutcome, ConfirmReader, JobConfirmOutcome, LedgerConfirm};
use pumice_engine::cycle::{SchedulingCycle, SessionChange};
use pumice_engine::model::reservation::same_incarnation;
use pumice_engine::model::{ClusterState, ErrorCode, Problem};
use pumice_engine::plugin::DecisionTime;

/// Request that a session's jobs be confirmed.
pub struct SessionConfirm {
    /// Plugins to evaluate. Empty: the plugins of the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// Lease of reservations that are not used; `None`: the default of the limits.
    pub lease: Option<Duration>,
    /// Time of the decision; `None`: the request gives none.
    pub now: Option<DecisionTime>,
    /// Items to confirm; `None`: the jobs that the session has enqueued and not confirmed yet, in that order.
    pub read_items: Option<ConfirmReader>,
}

impl std::fmt::Debug for SessionConfirm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SessionConfirm");
        shown.field("plugins", &self.plugins).finish_non_exhaustive()
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
    Box::new(move |cluster_state: &ClusterState, _| {
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
        Err(Problem::new(ErrorCode::JobUnknown, field, message))
    }
}

impl SharedState {
    /// Applies changes to a session and confirms in it. Jobs that are rejected leave the session: that is one more change,
    /// numbered after the others. Blocks: call it where blocking is allowed. A retry gets the recorded outcome. `before_wait`
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
        let busy = self.sessions.find(session)?;
        let policy = Arc::clone(&busy.0.policy);
        if busy.0.revision.number == 0 {
            let message = "the session is on a cluster of its own; CONFIRM writes to shared state";
            let problem = Problem::new(ErrorCode::ConfirmInline, "mode", message);
            return Err(StateError::QueryRejected { problem });
        }
        let transaction = SessionTransaction::begin(&self.sessions, busy)?;
        if let Some(done) = transaction.recorded(after, changes) {
            return Ok((transaction.repeat(), done));
        }
        let mut draft = transaction.draft_query(after, changes)?;
        // Checked before the write: after it, nothing may fail.
        transaction.check_bytes(&draft, 0)?;
        let all = confirm.read_items.is_none();
        let read = confirm.read_items.unwrap_or_else(|| read_enqueued_jobs(&draft.cycle));
        before_wait();
        let done = self.confirm_blocking(LedgerConfirm {
            policy: Arc::clone(&policy.name),
            profile: Arc::clone(&policy.profile),
            plugins: confirm.plugins,
            lease: confirm.lease,
            now: confirm.now,
            items: ConfirmItems::Unread(read),
        })?;
        let (permitted, rejected) = verdicts(&done, all.then(|| draft.cycle.enqueued()));
        let resolved = draft.cycle.resolve_enqueued(&permitted, &rejected);
        let applied = transaction.applied();
        let resolved = resolved.map_err(|problem| StateError::ChangeRejected { problem, applied })?;
        draft.outcome.queues.extend(resolved.queues);
        let bytes = done.held_bytes();
        Ok(transaction.finish_query(draft, WeighedResult { result: done, bytes }))
    }
}
