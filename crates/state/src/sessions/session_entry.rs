//! One open session: its state, the claim for changes, and the time of its last call.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::clock::Clock;
use crate::connection_share::ConnectionShare;
use crate::error::StateError;
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::{PolicyInForce, Revision};

/// Result of a query that changed the session, recorded for retries.
pub(crate) type RecordedResult = Arc<dyn Any + Send + Sync>;

#[derive(Debug)]
pub(crate) struct SessionState {
    /// Result of the last change, if that was a query.
    pub(crate) recorded_result: Option<RecordedResult>,
    pub(crate) cycle: SchedulingCycle,
    pub(crate) applied: u64,
}

#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) name: Arc<str>,
    /// Number of the session, in the order of opening.
    pub(super) number: u64,
    /// Connection that it was opened by; `None`: it was opened by none.
    pub(super) connection: Option<ConnectionShare>,
    pub(crate) policy: Arc<PolicyInForce>,
    /// Name and profile of its policy in shared state; `None`: the session is on a cluster of its own.
    pub(crate) shared: Option<(Arc<str>, Arc<str>)>,
    pub(crate) revision: Revision,
    /// Source of the batch that it was opened with.
    pub(crate) source: Option<Arc<str>>,
    pub(crate) inner: ArcSwap<SessionState>,
    /// True while a call changes or ends the session.
    pub(super) changing: AtomicBool,
    /// Bytes that no change of the session changes: its entry, and a cluster of its own.
    pub(super) own_bytes: usize,
    /// Bytes that the session holds alone.
    pub(super) copied_bytes: AtomicUsize,
    pub(crate) opened_at: Duration,
    pub(crate) lease: Duration,
    /// Time of the last renewal, in milliseconds of the monotonic clock.
    pub(crate) renewed_at: AtomicU64,
    pub(crate) active_queries: AtomicU32,
}

impl SessionEntry {
    /// Claims the session for one change. Claims never wait: a second claim fails at once. Calls claim through the
    /// registry, which checks that the session is open.
    pub(super) fn claim(self: &Arc<Self>) -> Result<ChangeClaim, StateError> {
        if self.changing.swap(true, Ordering::AcqRel) {
            return Err(StateError::Aborted {
                applied: self.inner.load().applied,
            });
        }
        Ok(ChangeClaim(Arc::clone(self)))
    }

    /// State of the session, if it is exactly after change `after`.
    pub(crate) fn state_at(&self, after: u64) -> Result<Arc<SessionState>, StateError> {
        let inner = self.inner.load_full();
        if inner.applied == after {
            return Ok(inner);
        }
        Err(StateError::SequenceMismatch {
            applied: inner.applied,
            wanted: after,
        })
    }
}

/// Claim of the call that changes or ends a session; given back when dropped.
#[derive(Debug)]
pub(crate) struct ChangeClaim(Arc<SessionEntry>);

impl Drop for ChangeClaim {
    fn drop(&mut self) {
        self.0.changing.store(false, Ordering::Release);
    }
}

/// Guard of a call on a session. When it is dropped, the session's lease starts again.
#[derive(Debug)]
pub(crate) struct SessionGuard(pub(crate) Arc<SessionEntry>, Arc<dyn Clock>);

impl SessionGuard {
    pub(super) fn new(session: Arc<SessionEntry>, clock: Arc<dyn Clock>) -> Self {
        session.active_queries.fetch_add(1, Ordering::AcqRel);
        Self(session, clock)
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.renewed_at.store(millis(self.1.monotonic()), Ordering::Release);
        self.0.active_queries.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
