//! Sessions: opening, stepping through, and closing them.

use std::sync::Arc;

use super::opening::{OpenSession, OpenedSession, SessionBase};
use super::session_entry::{SessionGuard, SessionState};
use crate::SharedState;
use crate::error::StateError;
use crate::policies::policy_in_snapshot;
use crate::writer::published;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PolicyInForce, Revision};

/// Session after some of its changes. Its lease pauses while this value exists.
#[derive(Debug)]
pub struct SteppedSession {
    /// State as the session sees it.
    pub cluster_state: ClusterState,
    /// Policy that the session is pinned to.
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

    /// Id of the session, such as `5f1c-2`.
    pub fn name(&self) -> &str {
        &self.busy.0.name
    }
}

/// Cluster of a session's own with the plugin states of it, and their bytes.
async fn weigh_cluster(
    cluster_state: ClusterState,
    policy: &Arc<PolicyInForce>,
) -> Result<((ClusterState, PluginStates), usize), StateError> {
    let policy = Arc::clone(policy);
    let weighed = crate::tasks::run_blocking(move || {
        let derived = policy.policy.compute_plugin_states(&cluster_state);
        let bytes = cluster_state.held_bytes() + derived.unshared_bytes(&PluginStates::default());
        ((cluster_state, derived), bytes)
    });
    weighed.await.map_err(|_| StateError::ShuttingDown)
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

    /// Applies changes to a session and returns the session after them. `after`: number of changes before these
    /// changes; already applied changes are skipped. For example, `after` 5 with three changes at a session of 6
    /// applies the last two. Without changes, the session must be exactly after change `after`.
    ///
    /// # Errors
    /// The session has ended, is at another change, or rejects a change; nothing was applied.
    pub fn step_session(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
    ) -> Result<SteppedSession, StateError> {
        if changes.is_empty() {
            let busy = self.sessions.find(session)?;
            let inner = busy.0.state_at(after)?;
            return Ok(SteppedSession::new(&inner, busy, ChangeOutcome::default(), false));
        }
        let transaction = self.sessions.begin(session)?;
        let draft = transaction.draft(after, changes)?;
        transaction.check_bytes(&draft, 0)?;
        Ok(transaction.finish(draft))
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

    /// Number of the last applied change of a session, including ended sessions that are still remembered.
    pub fn applied_through(&self, session: &str) -> Option<u64> {
        let open = self.sessions.open.get(session).map(|open| open.inner.load().applied);
        open.or_else(|| self.sessions.ended.applied(session))
    }

    /// Bytes that open sessions hold, including former states that only they hold. The part of former states is updated
    /// every half second.
    pub fn session_bytes(&self) -> usize {
        self.sessions.bytes()
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
}
