//! Sessions: opening, stepping through, and closing them.

use std::sync::Arc;

use super::opening::{OpenSession, OpenedSession, SessionBase};
use super::registry::{SessionEntry, SessionGuard, SessionRegistry, SessionState};
use crate::SharedState;
use crate::error::{StateError, limit_error};
use crate::writer::published;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PolicyInForce, Revision, Snapshot};

/// Session after some of its changes. Its lease pauses while this value exists.
#[derive(Debug)]
pub struct SteppedSession {
    /// State as the session sees it.
    pub cluster_state: ClusterState,
    /// Policy of the session.
    pub policy: Arc<PolicyInForce>,
    /// Revision of the state that the session is pinned to.
    pub revision: Revision,
    /// Number of the last applied change.
    pub applied_through: u64,
    /// Outcome of the changes of this step.
    pub outcome: ChangeOutcome,
    /// True if some changes had been applied before. Their outcome is not part of `outcome`, and may never have reached
    /// the caller.
    pub repeated: bool,
    /// Cycle after the changes, for queries that try hypothetical changes.
    pub cycle: SchedulingCycle,
    busy: SessionGuard,
}

impl SteppedSession {
    pub(crate) fn new(inner: &SessionState, busy: SessionGuard, outcome: ChangeOutcome, repeated: bool) -> Self {
        Self {
            cluster_state: inner.cycle.cluster_state().clone(),
            policy: Arc::clone(&busy.0.policy),
            revision: busy.0.revision,
            applied_through: inner.applied,
            outcome,
            repeated,
            cycle: inner.cycle.clone(),
            busy,
        }
    }

    /// Name of the session.
    pub fn name(&self) -> &str {
        &self.busy.0.name
    }
}

impl SessionRegistry {
    /// Applies the changes that are new, all or none. Returns the session after them.
    fn step(&self, name: &str, after: u64, changes: &[SessionChange]) -> Result<SteppedSession, StateError> {
        let busy = self.find(name)?;
        let (mut outcome, mut repeated) = (ChangeOutcome::default(), false);
        let inner = if changes.is_empty() {
            session_at(&busy.0, after)?
        } else {
            let _changing = self.claim_open(&busy.0)?;
            self.apply_changes(&busy.0, after, changes, (&mut outcome, &mut repeated))?
        };
        Ok(SteppedSession::new(&inner, busy, outcome, repeated))
    }

    /// Session after these changes. The caller holds the session's claim.
    pub(crate) fn session_after(
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

    pub(crate) fn check_changes(&self, session: &SessionEntry, last: u64) -> Result<(), StateError> {
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

    /// Cycle after the changes that are new, their outcome, and whether some were not new.
    pub(crate) fn cycle_after(
        &self,
        session: &SessionEntry,
        inner: &SessionState,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<(SchedulingCycle, ChangeOutcome, bool), StateError> {
        let applied = inner.applied;
        let skip = usize::try_from(applied.saturating_sub(after)).unwrap_or(usize::MAX);
        let new = changes.get(skip..).unwrap_or_default();
        // Savepoints that these changes remove are not subtracted: the bound holds at every point on the way.
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

/// Policy of this name and profile; an empty profile: the only one.
///
/// # Errors
/// There is no such policy, or no such profile of it.
pub fn policy_in_snapshot(snapshot: &Snapshot, name: &str, profile: &str) -> Result<Arc<PolicyInForce>, StateError> {
    let policy = snapshot.policies.get(name);
    let policy = policy.ok_or_else(|| StateError::PolicyUnknown { name: name.into() })?;
    policy.of_profile(profile).map_err(StateError::ProfileUnknown)
}

/// Cluster of a session's own with the plugin states of it, and their bytes.
async fn weigh_cluster(
    cluster_state: ClusterState,
    policy: &Arc<PolicyInForce>,
) -> Result<((ClusterState, PluginStates), usize), StateError> {
    let policy = Arc::clone(policy);
    let weighed = tokio::task::spawn_blocking(move || {
        let derived = policy.policy.compute_plugin_states(&cluster_state);
        let bytes = cluster_state.held_bytes() + derived.unshared_bytes(&PluginStates::default());
        ((cluster_state, derived), bytes)
    });
    weighed.await.map_err(|_| StateError::ShuttingDown)
}

/// State of the session, if it is exactly after change `after`.
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
    /// The batch was not taken, no such policy exists, or a limit is exceeded.
    pub async fn open_session(&self, open: OpenSession) -> Result<OpenedSession, StateError> {
        let OpenSession {
            base,
            batch,
            lease,
            connection,
        } = open;
        // Checked before the batch is applied.
        if let SessionBase::Latest { policy, profile } = &base {
            policy_in_snapshot(&self.snapshot(), policy, profile)?;
        }
        self.sessions
            .check_session_limit(connection.as_ref(), &self.snapshot())?;
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
        let caller = (lease, source, connection);
        let opened = match base {
            SessionBase::Inline { cluster_state, policy } => {
                let revision = Revision {
                    number: 0,
                    ..snapshot.revision
                };
                let (state, bytes) = weigh_cluster(*cluster_state, &policy).await?;
                self.sessions
                    .open(state, bytes, policy, None, (revision, &snapshot), caller)?
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
                    .open(state, 0, policy, shared, (snapshot.revision, &snapshot), caller)?
            }
        };
        Ok(OpenedSession {
            batch_outcome: outcome,
            ..opened
        })
    }

    /// Applies changes to a session and returns the session after them. `after`: number of changes before these; those
    /// that were applied already are skipped. Without changes, the session must be exactly after change `after`.
    ///
    /// # Errors
    /// The session has ended, is at another change, or rejects a change; nothing was applied.
    pub fn step_session(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<SteppedSession, StateError> {
        self.sessions.step(session, after, changes)
    }

    /// State of a session at its current change, for reading.
    ///
    /// # Errors
    /// The session has ended.
    pub fn peek_session(&self, session: &str) -> Result<ClusterState, StateError> {
        let busy = self.sessions.find(session)?;
        Ok(busy.0.inner.load().cycle.cluster_state().clone())
    }

    /// Closes a session. Returns the number of its last applied change; a retry gets the same number.
    ///
    /// # Errors
    /// The session has ended in another way, or a change or its commit is under way.
    pub fn close_session(&self, session: &str) -> Result<u64, StateError> {
        self.sessions.close(session)
    }

    /// Number of the last applied change of a session. An ended session counts as long as it is remembered.
    pub fn applied_through(&self, session: &str) -> Option<u64> {
        let open = self.sessions.open.get(session).map(|open| open.inner.load().applied);
        open.or_else(|| self.sessions.ended.applied(session))
    }

    /// Bytes that open sessions hold, with the former states that nothing else holds. These are counted again every half
    /// second.
    pub fn session_bytes(&self) -> usize {
        self.sessions.bytes()
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
}
