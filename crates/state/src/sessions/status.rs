//! Status of open sessions, for people. Reading it does not renew a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::SharedState;
use pumice_engine::{PolicyInForce, Revision};

/// Status of an open session at one moment.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Name of the session.
    pub session: Arc<str>,
    /// Source of the batch that it was opened with.
    pub source: Option<Arc<str>>,
    /// Time since it was opened.
    pub age: Duration,
    /// Time since the last call ended. `None`: a call is in progress.
    pub idle: Option<Duration>,
    /// Remaining lease. `None`: a call is in progress.
    pub lease_left: Option<Duration>,
    /// Number of the last applied change.
    pub changes: u64,
    /// Number of savepoints.
    pub savepoints: usize,
    /// Number of calls in progress.
    pub active_queries: u32,
    /// Policy that it is pinned to.
    pub policy: Arc<PolicyInForce>,
    /// Revision of the state that it is pinned to.
    pub revision: Revision,
}

impl SharedState {
    /// Open sessions, by name.
    pub fn list_sessions(&self) -> Vec<SessionStatus> {
        let now = self.clock.monotonic();
        let status = |session: &super::session_entry::SessionEntry| {
            let inner = session.inner.load();
            let queries = session.active_queries.load(Ordering::Acquire);
            let renewed = Duration::from_millis(session.renewed_at.load(Ordering::Acquire));
            let (age, idle) = (now.saturating_sub(session.opened_at), now.saturating_sub(renewed));
            let left = session.lease.saturating_sub(idle);
            let left = left.min(self.limits.session_age.saturating_sub(age));
            SessionStatus {
                session: Arc::clone(&session.name),
                source: session.source.clone(),
                age,
                idle: (queries == 0).then_some(idle),
                lease_left: (queries == 0).then_some(left),
                changes: inner.applied,
                savepoints: inner.cycle.savepoint_count(),
                active_queries: queries,
                policy: Arc::clone(&session.policy),
                revision: session.revision,
            }
        };
        let mut all: Vec<SessionStatus> = self.sessions.open.iter().map(|session| status(&session)).collect();
        all.sort_by(|a, b| a.session.cmp(&b.session));
        all
    }
}
