//! Sessions as schedulers see them: opened, stepped through, closed.

use std::sync::Arc;
use std::time::Duration;

use super::SharedState;
use super::batch::{Batch, BatchOutcome};
use super::error::StateError;
use super::published;
use super::session_registry::{SessionEntry, SessionGuard, SessionRegistry, SessionState};
use super::sources::limit_error;
use crate::engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};
use crate::engine::model::ClusterState;
use crate::engine::{PolicyInForce, Revision, Snapshot};

/// What a session is pinned to.
#[derive(Clone, Debug)]
pub enum SessionBase {
    /// The newest state under a policy.
    Latest {
        /// Policy name.
        policy: Arc<str>,
        /// Profile of it; empty: the only one.
        profile: Arc<str>,
    },
    /// A cluster and a policy of its own.
    Inline {
        /// The cluster.
        cluster_state: Box<ClusterState>,
        /// The policy.
        policy: Arc<PolicyInForce>,
    },
}

/// Asks for a session.
#[derive(Debug)]
pub struct OpenSession {
    /// What it is pinned to, after `batch`.
    pub base: SessionBase,
    /// The scheduler's own changes since its last batch.
    pub batch: Option<Batch>,
    /// Ends when silent for so long; `None`: as the limits say.
    pub lease: Option<Duration>,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    /// Names it in every question.
    pub session: Arc<str>,
    /// State that it is pinned to.
    pub revision: Revision,
    /// Policy that it is pinned to.
    pub policy: Arc<PolicyInForce>,
    /// What became of the batch.
    pub batch_outcome: Option<BatchOutcome>,
    /// Lease granted.
    pub lease: Duration,
    /// Hard end.
    pub max_age: Duration,
}

/// A session at one point. While it is held, the session's lease does not run.
#[derive(Debug)]
pub struct SteppedSession {
    /// State as the session sees it.
    pub cluster_state: ClusterState,
    /// Policy of the session.
    pub policy: Arc<PolicyInForce>,
    /// State that the session is pinned to.
    pub revision: Revision,
    /// Number of the last applied change.
    pub applied_through: u64,
    /// What the changes of this step did.
    pub outcome: ChangeOutcome,
    /// Some changes had been applied before: what they did is not in `outcome`, and may never have reached the caller.
    pub repeated: bool,
    /// The cycle as it stands, for what is only taken to have happened.
    pub cycle: SchedulingCycle,
    _busy: SessionGuard,
}

impl SteppedSession {
    pub(super) fn new(inner: &SessionState, busy: SessionGuard, outcome: ChangeOutcome, repeated: bool) -> Self {
        Self {
            cluster_state: inner.cycle.cluster_state().clone(),
            policy: Arc::clone(&busy.0.policy),
            revision: busy.0.revision,
            applied_through: inner.applied,
            outcome,
            repeated,
            cycle: inner.cycle.clone(),
            _busy: busy,
        }
    }
}
impl SessionRegistry {
    /// Applies changes that are new, all or none, and shows the session as it then stands.
    fn step(&self, name: &str, after: u64, changes: &[SessionChange]) -> Result<SteppedSession, StateError> {
        let busy = self.find(name)?;
        let (mut outcome, mut repeated) = (ChangeOutcome::default(), false);
        let inner = if changes.is_empty() {
            session_at(&busy.0, after)?
        } else {
            let _changing = self.lock_open(&busy.0)?;
            self.apply_changes(&busy.0, after, changes, (&mut outcome, &mut repeated))?
        };
        Ok(SteppedSession::new(&inner, busy, outcome, repeated))
    }

    /// The session after these changes. To be called with its lock held.
    pub(super) fn session_after(
        &self,
        session: &SessionEntry,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<Arc<SessionState>, StateError> {
        if changes.is_empty() {
            return session_at(session, after);
        }
        self.apply_changes(session, after, changes, (&mut ChangeOutcome::default(), &mut false))
    }

    fn apply_changes(
        &self,
        session: &SessionEntry,
        after: u64,
        changes: &[SessionChange],
        (outcome, repeated): (&mut ChangeOutcome, &mut bool),
    ) -> Result<Arc<SessionState>, StateError> {
        let inner = session.inner.load_full();
        let (applied, last) = (inner.applied, after.saturating_add(changes.len() as u64));
        if after > applied {
            return Err(StateError::SequenceGap { applied, after });
        }
        if last < applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last });
        }
        self.check_changes(session, last)?;
        let cycle;
        (cycle, *outcome, *repeated) = self.cycle_after(session, &inner, after, changes)?;
        let next = Arc::new(SessionState {
            recorded_result: None,
            cycle,
            applied: last,
        });
        self.reserve_bytes(session, next.cycle.bytes())?;
        session.inner.store(Arc::clone(&next));
        Ok(next)
    }

    pub(super) fn check_changes(&self, session: &SessionEntry, last: u64) -> Result<(), StateError> {
        if last <= self.limits.session_changes {
            return Ok(());
        }
        let message = format!("session `{}` would have {last} changes", session.name);
        Err(StateError::Limit {
            limit: "session_changes",
            value: self.limits.session_changes,
            message,
        })
    }

    /// The cycle after those changes that are new, what they did, and whether some were not new.
    pub(super) fn cycle_after(
        &self,
        session: &SessionEntry,
        inner: &SessionState,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<(SchedulingCycle, ChangeOutcome, bool), StateError> {
        let applied = inner.applied;
        let skip = usize::try_from(applied.saturating_sub(after)).unwrap_or(usize::MAX);
        let new = changes.get(skip..).unwrap_or_default();
        // Those that the changes take back on their way are not counted off: nothing may grow beyond the bound meanwhile.
        let more = new
            .iter()
            .filter(|change| matches!(change, SessionChange::Savepoint(_)))
            .count();
        let savepoints = inner.cycle.savepoint_count() + more;
        if savepoints > self.limits.session_savepoints {
            let message = format!("session `{}` would have {savepoints} savepoints", session.name);
            return Err(limit_error(
                "session_savepoints",
                self.limits.session_savepoints,
                message,
            ));
        }
        let mut cycle = inner.cycle.clone();
        let outcome = cycle
            .apply_from(skip.min(changes.len()), new)
            .map_err(|problem| StateError::ChangeRejected { problem, applied })?;
        Ok((cycle, outcome, skip > 0))
    }
}

/// The policy of this name, and of this profile of it.
pub(super) fn policy_in_snapshot(
    snapshot: &Snapshot,
    name: &Arc<str>,
    profile: &str,
) -> Result<Arc<PolicyInForce>, StateError> {
    let policy = snapshot.policies.get(name);
    let policy = policy.ok_or_else(|| StateError::PolicyUnknown { name: Arc::clone(name) })?;
    policy.of_profile(profile).map_err(StateError::ProfileUnknown)
}

/// The session, if it is exactly there.
fn session_at(session: &SessionEntry, after: u64) -> Result<Arc<SessionState>, StateError> {
    let inner = session.inner.load_full();
    if inner.applied == after {
        return Ok(inner);
    }
    Err(StateError::SequenceMismatch {
        applied: inner.applied,
        wanted: after,
    })
}

impl SharedState {
    /// Opens a session on the newest state, after the scheduler's own changes, or on a cluster of its own.
    ///
    /// # Errors
    /// The batch could not be taken in, there is no such policy, or too many sessions are open.
    pub async fn open_session(&self, open: OpenSession) -> Result<OpenedSession, StateError> {
        let OpenSession {
            base: evaluation_ref,
            batch,
            lease,
        } = open;
        // Refused before anything is applied.
        if let SessionBase::Latest { policy, profile } = &evaluation_ref {
            policy_in_snapshot(&self.snapshot(), policy, profile)?;
        }
        self.sessions.check_session_limit()?;
        let source = batch.as_ref().map(|batch| Arc::clone(&batch.source));
        let outcome = match batch {
            Some(batch) => Some(self.apply_batch(batch).await?),
            None => None,
        };
        if let Some(outcome) = outcome.as_ref().filter(|outcome| outcome.resync.is_some()) {
            return Err(StateError::ResyncNeeded {
                outcome: Box::new(outcome.clone()),
            });
        }
        let snapshot = self.snapshot();
        let opened = match evaluation_ref {
            SessionBase::Inline { cluster_state, policy } => {
                let revision = Revision {
                    number: 0,
                    ..snapshot.revision
                };
                let own = Arc::clone(&policy);
                let derived = published::derive_plugin_states(&policy, {
                    let cluster_state = cluster_state.clone();
                    move || own.policy.compute_plugin_states(&cluster_state)
                });
                self.sessions.open(
                    (*cluster_state, derived.await?),
                    policy,
                    None,
                    revision,
                    (lease, source),
                )?
            }
            SessionBase::Latest { policy: name, profile } => {
                let policy = policy_in_snapshot(&snapshot, &name, &profile)?;
                let derived = published::derive_plugin_states(&policy, {
                    let (snapshot, policy) = (Arc::clone(&snapshot), Arc::clone(&policy));
                    move || snapshot.plugin_states(&policy)
                });
                let state = (snapshot.state.clone(), derived.await?);
                let shared = Some((name, profile));
                self.sessions
                    .open(state, policy, shared, snapshot.revision, (lease, source))?
            }
        };
        Ok(OpenedSession {
            batch_outcome: outcome,
            ..opened
        })
    }

    /// A session after these changes. `after`: number of changes before them; those already applied are skipped.
    /// Without changes: the session must be exactly there.
    ///
    /// # Errors
    /// The session has ended, is elsewhere in its sequence, or refuses a change; nothing was applied.
    pub fn step_session(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<SteppedSession, StateError> {
        self.sessions.step(session, after, changes)
    }

    /// A session wherever it stands, for reading.
    ///
    /// # Errors
    /// The session has ended.
    pub fn peek_session(&self, session: &str) -> Result<ClusterState, StateError> {
        let busy = self.sessions.find(session)?;
        Ok(busy.0.inner.load().cycle.cluster_state().clone())
    }

    /// Ends a session; a retry gets the same answer: the number of its last applied change.
    ///
    /// # Errors
    /// The session had ended otherwise, or a change or its commit is under way.
    pub fn close_session(&self, session: &str) -> Result<u64, StateError> {
        self.sessions.close(session)
    }

    /// Number of the last applied change of a session, also of one that has ended and is remembered.
    pub fn applied_through(&self, session: &str) -> Option<u64> {
        let open = self.sessions.open.get(session).map(|open| open.inner.load().applied);
        open.or_else(|| self.sessions.ended.get(session).map(|ended| ended.applied))
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
}
