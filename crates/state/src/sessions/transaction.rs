//! Transactions of sessions: a call claims its session, works on a copy of it, and stores the copy.

use std::any::Any;
use std::sync::Arc;

use super::query::WeighedResult;
use super::registry::SessionRegistry;
use super::session_entry::{ChangeClaim, RecordedResult, SessionEntry, SessionGuard, SessionState};
use super::steps::SteppedSession;
use crate::error::{StateError, limit_error};
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange};

/// Transaction of one call on a session. As long as it exists, no other call changes or ends the session.
///
/// The call works on a [`SessionDraft`]. Without a draft that it stores, nothing has happened.
#[derive(Debug)]
pub(super) struct SessionTransaction<'r> {
    registry: &'r SessionRegistry,
    _changing: ChangeClaim,
    busy: SessionGuard,
    /// State of the session before the call.
    before: Arc<SessionState>,
}

/// Session after the changes of a call, as long as it is not stored.
#[derive(Debug)]
pub(super) struct SessionDraft {
    /// Cycle after the changes.
    pub(super) cycle: SchedulingCycle,
    /// Outcome of the changes.
    pub(super) outcome: ChangeOutcome,
    /// True if some changes had been applied before.
    repeated: bool,
    /// Number of the last change.
    last: u64,
}

impl SessionRegistry {
    /// Finds a session, and begins a transaction on it.
    pub(super) fn begin(&self, name: &str) -> Result<SessionTransaction<'_>, StateError> {
        SessionTransaction::begin(self, self.find(name)?)
    }
}

impl<'r> SessionTransaction<'r> {
    /// Begins a transaction on a session that was found.
    pub(super) fn begin(registry: &'r SessionRegistry, busy: SessionGuard) -> Result<Self, StateError> {
        let changing = registry.claim_open(&busy.0)?;
        Ok(Self {
            registry,
            _changing: changing,
            before: busy.0.inner.load_full(),
            busy,
        })
    }

    pub(super) fn session(&self) -> &SessionEntry {
        &self.busy.0
    }

    /// Number of the last change before the call.
    pub(super) fn applied(&self) -> u64 {
        self.before.applied
    }

    /// Result of a query that was already applied as the change after these changes. Only the result of the session's
    /// last change is stored.
    pub(super) fn recorded<T: Any + Send + Sync>(&self, after: u64, changes: &[SessionChange]) -> Option<Arc<T>> {
        let is_last = through(after, changes).saturating_add(1) == self.applied();
        let result = self.before.recorded_result.clone().filter(|_| is_last)?;
        result.downcast().ok()
    }

    /// Draft after these changes. Changes that were already applied are skipped.
    pub(super) fn draft(&self, after: u64, changes: &[SessionChange]) -> Result<SessionDraft, StateError> {
        self.draft_with(after, changes, 0)
    }

    /// Draft after these changes, for a query that is one more change, numbered after them.
    pub(super) fn draft_query(&self, after: u64, changes: &[SessionChange]) -> Result<SessionDraft, StateError> {
        self.draft_with(after, changes, 1)
    }

    /// Draft after these changes. `own`: number of changes that the call itself makes after them.
    fn draft_with(&self, after: u64, changes: &[SessionChange], own: u64) -> Result<SessionDraft, StateError> {
        let applied = self.applied();
        if after > applied {
            return Err(StateError::SequenceGap { applied, after });
        }
        let given = through(after, changes);
        let last = given.saturating_add(own);
        if given < applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last });
        }
        self.check_changes(last)?;
        let skip = usize::try_from(applied - after).unwrap_or(usize::MAX);
        let new = changes.get(skip..).unwrap_or_default();
        self.check_savepoints(new)?;
        let mut cycle = self.before.cycle.clone();
        let outcome = cycle
            .apply_from(skip.min(changes.len()), new)
            .map_err(|problem| StateError::ChangeRejected { problem, applied })?;
        Ok(SessionDraft {
            cycle,
            outcome,
            repeated: skip > 0,
            last,
        })
    }

    fn check_changes(&self, last: u64) -> Result<(), StateError> {
        let most = self.registry.limits.session_changes;
        if last <= most as u64 {
            return Ok(());
        }
        let message = format!("session `{}` would have {last} changes", self.session().name);
        Err(limit_error("session_changes", most, message))
    }

    /// Checks the number of savepoints. Savepoints that these changes remove are not subtracted, so the bound holds
    /// after each change.
    fn check_savepoints(&self, new: &[SessionChange]) -> Result<(), StateError> {
        let more = new
            .iter()
            .filter(|change| matches!(change, SessionChange::Savepoint(_)));
        let savepoints = self.before.cycle.savepoint_count() + more.count();
        let most = self.registry.limits.session_savepoints;
        if savepoints <= most {
            return Ok(());
        }
        let message = format!("session `{}` would have {savepoints} savepoints", self.session().name);
        Err(limit_error("session_savepoints", most, message))
    }

    /// Checks that the session may hold a draft, and this many bytes of a result beside it.
    pub(super) fn check_bytes(&self, draft: &SessionDraft, result_bytes: usize) -> Result<(), StateError> {
        let bytes = draft.cycle.bytes().saturating_add(result_bytes);
        self.registry.check_growth(self.session(), bytes)
    }

    /// Applies changes and returns the new state. Without changes, the session must be exactly after change `after`.
    pub(super) fn apply(&self, after: u64, changes: &[SessionChange]) -> Result<Arc<SessionState>, StateError> {
        if changes.is_empty() {
            return self.session().state_at(after);
        }
        let draft = self.draft(after, changes)?;
        self.check_bytes(&draft, 0)?;
        Ok(self.store(draft.cycle, draft.last, None))
    }

    /// Stores a checked draft, and ends the transaction.
    pub(super) fn finish(self, draft: SessionDraft) -> SteppedSession {
        self.end(draft, None)
    }

    /// Stores a checked draft with the result of its query, and ends the transaction.
    pub(super) fn finish_query<T: Any + Send + Sync>(
        self,
        draft: SessionDraft,
        WeighedResult { result, bytes }: WeighedResult<T>,
    ) -> (SteppedSession, Arc<T>) {
        let result = Arc::new(result);
        let recorded = Arc::clone(&result) as RecordedResult;
        (self.end(draft, Some((recorded, bytes))), result)
    }

    fn end(self, draft: SessionDraft, result: Option<(RecordedResult, usize)>) -> SteppedSession {
        let next = self.store(draft.cycle, draft.last, result);
        SteppedSession::new(&next, self.busy, draft.outcome, draft.repeated)
    }

    /// Stores the cycle after a change, with the result of that change and its bytes. Nothing can fail any more.
    fn store(&self, cycle: SchedulingCycle, last: u64, result: Option<(RecordedResult, usize)>) -> Arc<SessionState> {
        let (recorded_result, result_bytes) = result.unzip();
        let bytes = cycle.bytes().saturating_add(result_bytes.unwrap_or(0));
        let next = Arc::new(SessionState {
            recorded_result,
            cycle,
            applied: last,
        });
        self.registry.record_bytes(self.session(), bytes);
        self.session().inner.store(Arc::clone(&next));
        next
    }

    /// Ends the transaction of a query that was applied before.
    pub(super) fn repeat(self) -> SteppedSession {
        SteppedSession::new(&self.before, self.busy, ChangeOutcome::default(), true)
    }
}

/// Number of the last change.
fn through(after: u64, changes: &[SessionChange]) -> u64 {
    after.saturating_add(changes.len() as u64)
}
