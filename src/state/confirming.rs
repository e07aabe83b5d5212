//! CONFIRM in a session: the jobs that it enqueued are promised what they need, in one commit of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::error::StateError;
use super::ledger::{Confirm, ConfirmItem, Confirmation, Confirmed, Reading};
use super::session::Stepped;
use super::sessions::{Inner, Recorded, Sessions};
use crate::engine::cycle::{Change, Cycle, Outcome};
use crate::engine::model::reservation::same_incarnation;
use crate::engine::model::{Problem, ProblemKind, View};

/// Asks that a session's jobs be promised what they need.
pub struct SessionConfirm {
    /// Ask these plugins only; empty: the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// How long unused reservations live; `None`: as the limits say.
    pub lease: Option<Duration>,
    /// The items; `None`: the jobs that the session has enqueued and not confirmed yet, in that order.
    pub read: Option<Reading>,
}

impl std::fmt::Debug for SessionConfirm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SessionConfirm");
        shown.field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Applies changes, confirms, and lets jobs that are refused leave: one more change, numbered after them.
    fn confirm(
        &self,
        name: &str,
        after: u64,
        changes: &[Change],
        confirm: SessionConfirm,
        write: impl FnOnce(Confirm) -> Result<Confirmation, StateError>,
    ) -> Result<(Stepped, Arc<Confirmation>), StateError> {
        let busy = self.find(name)?;
        let session = Arc::clone(&busy.0);
        if session.revision.number == 0 {
            let message = "the session stands on a cluster of its own; CONFIRM writes to shared state";
            let problem = Problem::new(ProblemKind::Invalid, "CONFIRM_INLINE", "mode", message);
            return Err(StateError::QuestionRefused { problem });
        }
        let _changing = session.lock()?;
        // It may have ended while somebody else held it.
        drop(self.find(name)?);
        let inner = session.inner.load_full();
        let applied = inner.applied;
        let last = after.saturating_add(changes.len() as u64).saturating_add(1);
        if after > applied {
            return Err(StateError::SequenceGap { applied, after });
        }
        let recorded = inner.recorded.clone().filter(|_| last == applied);
        if let Some(answer) = recorded.and_then(|answer| answer.downcast::<Confirmation>().ok()) {
            return Ok((Stepped::at(&inner, busy, Outcome::default(), true), answer));
        }
        if last <= applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last });
        }
        self.check_changes(&session, last)?;
        let (mut cycle, mut outcome, repeated) = self.cycle_after(&session, &inner, after, changes)?;
        let SessionConfirm { plugins, lease, read } = confirm;
        let all = read.is_none();
        // After the write nothing may be refused any more.
        self.room(&session, cycle.bytes())?;
        let done = write(Confirm {
            policy: Arc::clone(&session.policy.name),
            profile: Arc::clone(&session.policy.profile),
            plugins,
            lease,
            read: read.unwrap_or_else(|| kept(&cycle)),
        })?;
        let (permitted, refused) = verdicts(&done, all.then(|| cycle.enqueued()));
        let settled = cycle.settle(&permitted, &refused);
        let settled = settled.map_err(|problem| StateError::ChangeRefused { problem, applied })?;
        outcome.queues.extend(settled.queues);
        let done = Arc::new(done);
        let next = Arc::new(Inner {
            recorded: Some(Arc::clone(&done) as Recorded),
            cycle,
            applied: last,
        });
        self.count(&session, next.cycle.bytes());
        session.inner.store(Arc::clone(&next));
        Ok((Stepped::at(&next, busy, outcome, repeated), done))
    }
}

/// Jobs that the ledger has permitted, and those that it has refused; of all that were enqueued, or of those asked about.
fn verdicts(done: &Confirmation, enqueued: Option<&[Arc<str>]>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let said = done.items.iter().flatten();
    let (permitted, refused): (Vec<_>, Vec<_>) = said.partition(|item| item.admission.permitted);
    let jobs =
        |items: Vec<&Confirmed>| -> Vec<Arc<str>> { items.into_iter().map(|item| Arc::clone(&item.job)).collect() };
    let permitted = jobs(permitted);
    let refused = match enqueued {
        Some(enqueued) => {
            let kept: BTreeSet<&Arc<str>> = permitted.iter().collect();
            enqueued.iter().filter(|job| !kept.contains(job)).cloned().collect()
        }
        None => jobs(refused),
    };
    (permitted, refused)
}

/// The jobs that a cycle has enqueued, as the newest state has them.
fn kept(cycle: &Cycle) -> Reading {
    let asked: Vec<(Arc<str>, Arc<str>)> = cycle
        .enqueued()
        .iter()
        .map(|name| {
            let job = cycle.view().jobs().get(name);
            let uid = job.map(|job| Arc::clone(&job.record.uid));
            (Arc::clone(name), uid.unwrap_or_default())
        })
        .collect();
    Box::new(move |view: &View| {
        let numbered = asked.iter().enumerate();
        numbered
            .map(|(number, (name, uid))| newest(view, number, name, uid))
            .collect()
    })
}

/// The job as the newest state has it, asking once more for what it was promised already.
fn newest(view: &View, number: usize, name: &Arc<str>, uid: &str) -> Result<ConfirmItem, Problem> {
    let stored = view.jobs().get(name);
    let promised = view.reservations().get(name).filter(|row| row.is_of(uid));
    if let Some(stored) = stored.filter(|stored| same_incarnation(&stored.record.uid, uid)) {
        Ok(ConfirmItem {
            job: Arc::new(stored.record.clone()),
            attempt: promised.map_or(0, |row| row.attempt),
            names: Arc::clone(view.resources()),
        })
    } else {
        let message = format!("there is no job `{name}` any more");
        let field = format!("items[{number}].job");
        Err(Problem::new(ProblemKind::NotFound, "JOB_NOT_FOUND", field, message))
    }
}

impl State {
    /// Confirms in a session. To be called where blocking is allowed. Asked again, the recorded answer comes back.
    ///
    /// # Errors
    /// As [`Self::step`] and [`Self::confirm`]; nothing was applied.
    pub fn confirm_session(
        &self,
        session: &str,
        after: u64,
        changes: &[Change],
        confirm: SessionConfirm,
    ) -> Result<(Stepped, Arc<Confirmation>), StateError> {
        let write = |confirm| self.confirm_blocking(confirm);
        self.sessions.confirm(session, after, changes, confirm, write)
    }
}
