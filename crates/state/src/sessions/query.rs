//! Queries that change their session: each is one numbered change, and its result is recorded for a retry.

use std::any::Any;
use std::sync::Arc;

use super::registry::{RecordedResult, SessionRegistry, SessionState};
use super::steps::SteppedSession;
use crate::SharedState;
use crate::error::StateError;
use pumice_engine::PolicyInForce;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};
use pumice_engine::model::{ClusterState, Problem};
use pumice_engine::plugin_state::PluginStates;

/// Result of a query that changes its session. The session keeps it until its next change, for a retry.
#[derive(Clone, Copy, Debug)]
pub struct WeighedResult<T> {
    /// The result.
    pub result: T,
    /// Memory that it takes, in bytes.
    pub bytes: usize,
}

impl SessionRegistry {
    /// Applies changes and then a query that changes the session itself: one more change, numbered after the others.
    fn query<T: Any + Send + Sync, E: From<StateError>>(
        &self,
        name: &str,
        after: u64,
        changes: &[SessionChange],
        query: impl FnOnce(&mut SchedulingCycle, &PolicyInForce, &mut ChangeOutcome) -> Result<WeighedResult<T>, E>,
    ) -> Result<(SteppedSession, Arc<T>), E> {
        let busy = self.find(name)?;
        let session = Arc::clone(&busy.0);
        let _changing = self.claim_open(&session)?;
        let inner = session.inner.load_full();
        let applied = inner.applied;
        let last = after.saturating_add(changes.len() as u64).saturating_add(1);
        if after > applied {
            return Err(StateError::SequenceGap { applied, after }.into());
        }
        if last == applied
            && let Some(result) = inner
                .recorded_result
                .clone()
                .and_then(|result| result.downcast::<T>().ok())
        {
            return Ok((
                SteppedSession::new(&inner, busy, ChangeOutcome::default(), true),
                result,
            ));
        }
        if last <= applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last }.into());
        }
        self.check_changes(&session, last)?;
        let (mut cycle, mut outcome, repeated) = self.cycle_after(&session, &inner, after, changes)?;
        let WeighedResult { result, bytes } = query(&mut cycle, &session.policy, &mut outcome)?;
        let result = Arc::new(result);
        let next = Arc::new(SessionState {
            recorded_result: Some(Arc::clone(&result) as RecordedResult),
            cycle,
            applied: last,
        });
        self.reserve_bytes(&session, next.cycle.bytes().saturating_add(bytes))?;
        session.inner.store(Arc::clone(&next));
        Ok((SteppedSession::new(&next, busy, outcome, repeated), result))
    }
}

impl SharedState {
    /// Applies changes to a session and then evaluates a query that changes it: one more change, numbered after the
    /// others. A retry gets the recorded result.
    ///
    /// # Errors
    /// The errors of [`Self::step_session`]; or the query cannot be evaluated, and nothing was applied.
    pub fn query_session<T: Any + Send + Sync>(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
        query: impl FnOnce(&ClusterState, &PolicyInForce, &mut PluginStates) -> Result<WeighedResult<T>, Problem>,
    ) -> Result<(SteppedSession, Arc<T>), StateError> {
        let applied = self.applied_through(session).unwrap_or(0);
        self.sessions.query(session, after, changes, |cycle, policy, _| {
            let asked = cycle.query_plugins(|cluster_state, derived| query(cluster_state, policy, derived));
            asked.map_err(|problem| StateError::ChangeRejected { problem, applied })
        })
    }

    /// Applies changes to a session and then evaluates a query that changes its cycle and records in the outcome what
    /// it changed. A failed call has applied nothing.
    ///
    /// # Errors
    /// The errors of [`Self::step_session`], or the query's own.
    pub fn query_cycle<T: Any + Send + Sync, E: From<StateError>>(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
        query: impl FnOnce(&mut SchedulingCycle, &PolicyInForce, &mut ChangeOutcome) -> Result<WeighedResult<T>, E>,
    ) -> Result<(SteppedSession, Arc<T>), E> {
        self.sessions.query(session, after, changes, query)
    }
}
