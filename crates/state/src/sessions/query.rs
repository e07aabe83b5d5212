//! Queries that change their session: each is one numbered change, and its result is recorded for a retry.

use std::any::Any;
use std::sync::Arc;

use super::steps::SteppedSession;
use crate::SharedState;
use crate::error::StateError;
use pumice_engine::PolicyInForce;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};

/// Result of a query that changes its session. The session keeps it until its next change, for a retry.
#[derive(Clone, Copy, Debug)]
pub struct WeighedResult<T> {
    /// Result to return and to record for a retry.
    pub result: T,
    /// Memory that it takes, in bytes.
    pub bytes: usize,
}

impl SharedState {
    /// Applies changes to a session and then evaluates a query that changes its cycle, and records in the outcome what
    /// it changed: one more change, numbered after the others. A retry gets the recorded result. A failed call has applied
    /// nothing.
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
        let transaction = self.sessions.begin(session)?;
        if let Some(result) = transaction.recorded(after, changes) {
            return Ok((transaction.repeat(), result));
        }
        let mut draft = transaction.draft_query(after, changes)?;
        let result = query(&mut draft.cycle, &transaction.session().policy, &mut draft.outcome)?;
        transaction.check_bytes(&draft, result.bytes)?;
        Ok(transaction.finish_query(draft, result))
    }
}
