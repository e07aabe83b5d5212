//! All sessions: each is a private cluster state that one scheduler changes, with a lease and a record of its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;

use super::commit_outcome::CommitOutcome;
use super::former_states::FormerStates;
use super::opening::OpenedSession;
use super::session_entry::{ChangeClaim, SessionEntry, SessionGuard, SessionState, millis};
use super::tombstones::{EndedSession, EndedSessions, OutcomeRoom};
use crate::clock::Clock;
use crate::connection_share::{ConnectionShare, adjust};
use crate::error::{LimitHolder, StateError, held_limit_error};
use crate::limits::StateLimits;
use crate::store::LogNews;
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PolicyInForce, Revision, Snapshot};

/// Part of a limit that is kept for callers without a session: one eighth.
const RESERVE: usize = 8;
/// Bytes of a session without changes and without a cluster of its own, besides its cycle.
const SESSION_BYTES: usize = size_of::<SessionEntry>() + SESSION_NAME_BYTES;
/// Bytes of a session's name, and of its entry in the table.
const SESSION_NAME_BYTES: usize = 128;

/// All sessions, open and ended.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    pub(crate) limits: StateLimits,
    clock: Arc<dyn Clock>,
    name_prefix: u64,
    next: AtomicU64,
    pub(crate) open: DashMap<Arc<str>, Arc<SessionEntry>>,
    /// Bytes that open sessions hold alone.
    copied_bytes: AtomicUsize,
    /// Bytes of former states that only sessions hold, as of the last update.
    retained_bytes: AtomicUsize,
    pub(crate) ended: EndedSessions,
}

/// Beginning of the names of the sessions of a server that started with this epoch.
pub fn session_prefix(epoch: u64) -> String {
    format!("{:08x}.", epoch >> 32)
}

impl SessionRegistry {
    pub(crate) fn new(limits: StateLimits, clock: Arc<dyn Clock>, name_prefix: u64, news: Arc<LogNews>) -> Self {
        Self {
            limits,
            clock,
            name_prefix,
            next: AtomicU64::new(1),
            open: DashMap::new(),
            copied_bytes: AtomicUsize::new(0),
            retained_bytes: AtomicUsize::new(0),
            ended: EndedSessions::new(news),
        }
    }

    /// Checks that one more session may be opened by this connection. In a full table, a session that its connection left
    /// behind makes room.
    pub(crate) fn check_session_limit(
        &self,
        connection: Option<&ConnectionShare>,
        newest: &Snapshot,
    ) -> Result<(), StateError> {
        let share = || connection.map_or(Ok(()), |connection| connection.check_sessions(&self.limits));
        if self.open.len() >= self.limits.sessions || share().is_err() {
            self.sweep();
        }
        share()?;
        while self.exceeds(self.open.len().saturating_add(1), self.limits.sessions, connection) {
            if !self.end_left_behind() {
                let message = "no session can be opened until one ends: close those that are over";
                return Err(held_limit_error(
                    LimitHolder::Callers,
                    "sessions",
                    self.limits.sessions,
                    message.to_owned(),
                ));
            }
        }
        self.make_room(0, connection, Some(newest))
    }

    /// True if a connection may not use up so much of a limit: one eighth is kept for callers who have no session.
    fn exceeds(&self, amount: usize, limit: usize, connection: Option<&ConnectionShare>) -> bool {
        let holds = |connection: &ConnectionShare| {
            let mut open = self.open.iter();
            open.any(|own| {
                own.connection
                    .as_ref()
                    .is_some_and(|own| own.is_of_same_peer(connection))
            })
        };
        amount > limit || (amount > limit - limit / RESERVE && connection.is_some_and(holds))
    }

    /// Ends the longest silent session whose connection has ended. Returns false if there is none.
    fn end_left_behind(&self) -> bool {
        let is_left_behind = |session: &SessionEntry| {
            let connection = session.connection.as_ref();
            connection.is_some_and(ConnectionShare::has_ended) && session.active_queries.load(Ordering::Acquire) == 0
        };
        let left_behind = self.open.iter().filter(|session| is_left_behind(session));
        let mut left_behind: Vec<Arc<SessionEntry>> = left_behind.map(|session| Arc::clone(&session)).collect();
        left_behind.sort_by_key(|session| (session.renewed_at.load(Ordering::Acquire), session.number));
        left_behind.iter().any(|session| {
            let Ok(_changing) = session.claim() else { return false };
            let is_open = self.open.contains_key(&session.name);
            if is_open {
                self.end(
                    session,
                    false,
                    "its connection had ended, and another session needed its place",
                    None,
                );
            }
            is_open
        })
    }

    /// Makes room for this many bytes, at the cost of sessions that their connections left behind. `newest`: the state that
    /// former ones are compared with; `None`: what is retained of them is counted later.
    fn make_room(
        &self,
        more: usize,
        connection: Option<&ConnectionShare>,
        newest: Option<&Snapshot>,
    ) -> Result<(), StateError> {
        let check = || self.check_bytes(self.bytes().saturating_add(more), connection);
        while check().is_err() && self.end_left_behind() {
            if let Some(newest) = newest {
                self.recount_retained(newest);
            }
        }
        check()
    }

    /// Bytes that open sessions pin: clusters of their own, copies of what they changed, and former states that nothing
    /// else holds.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.copied_bytes.load(Ordering::Acquire);
        own.saturating_add(self.retained_bytes.load(Ordering::Acquire))
    }

    fn check_bytes(&self, bytes: usize, connection: Option<&ConnectionShare>) -> Result<(), StateError> {
        if !self.exceeds(bytes, self.limits.session_bytes, connection) {
            return Ok(());
        }
        let message = format!("open sessions would hold {bytes} bytes");
        Err(held_limit_error(
            LimitHolder::Callers,
            "session_bytes",
            self.limits.session_bytes,
            message,
        ))
    }

    /// Checks that a session may hold this many bytes. Reserves nothing.
    pub(crate) fn check_growth(&self, session: &SessionEntry, bytes: usize) -> Result<(), StateError> {
        let before = session.copied_bytes.load(Ordering::Acquire);
        match (bytes + session.own_bytes).checked_sub(before) {
            Some(more) if more > 0 => {
                if let Some(connection) = &session.connection {
                    connection.check_session_bytes(more, &self.limits)?;
                }
                self.make_room(more, session.connection.as_ref(), None)
            }
            _ => Ok(()),
        }
    }

    /// Records the bytes that a session holds now. The caller holds the session's claim.
    pub(crate) fn record_bytes(&self, session: &SessionEntry, bytes: usize) {
        let bytes = bytes + session.own_bytes;
        let before = session.copied_bytes.swap(bytes, Ordering::AcqRel);
        self.adjust_bytes(session, bytes, before);
    }

    fn adjust_bytes(&self, session: &SessionEntry, more: usize, less: usize) {
        adjust(&self.copied_bytes, more, less);
        if let Some(connection) = &session.connection {
            connection.adjust_bytes(more, less);
        }
    }

    /// Computes the bytes of former states that sessions hold, without bytes that `newest` shares.
    pub(crate) fn recount_retained(&self, newest: &Snapshot) {
        // The table's own locks are not held while states are compared.
        let open: Vec<Arc<SessionEntry>> = self.open.iter().map(|session| Arc::clone(&session)).collect();
        let former = FormerStates::of(&open, newest);
        self.retained_bytes.store(former.bytes(newest), Ordering::Release);
        let mut by_connection: BTreeMap<usize, (&ConnectionShare, Vec<Arc<SessionEntry>>)> = BTreeMap::new();
        for session in &open {
            if let Some(connection) = &session.connection {
                let (_, sessions) = by_connection
                    .entry(connection.key())
                    .or_insert((connection, Vec::new()));
                sessions.push(Arc::clone(session));
            }
        }
        for (connection, sessions) in by_connection.values() {
            let former = FormerStates::of(sessions, newest);
            connection.record_retained(former.bytes(newest));
        }
    }

    pub(crate) fn open(
        &self,
        (cluster_state, derived): (ClusterState, PluginStates),
        own_bytes: usize,
        policy: Arc<PolicyInForce>,
        shared: Option<(Arc<str>, Arc<str>)>,
        (revision, newest): (Revision, &Snapshot),
        (lease, source, connection): (Option<Duration>, Option<Arc<str>>, Option<ConnectionShare>),
    ) -> Result<OpenedSession, StateError> {
        self.check_session_limit(connection.as_ref(), newest)?;
        let cycle = SchedulingCycle::new(cluster_state, policy.policy.node_change_rules(), derived);
        let own_bytes = own_bytes.saturating_add(SESSION_BYTES);
        let bytes = own_bytes.saturating_add(cycle.bytes());
        if let Some(connection) = &connection {
            connection.check_session_bytes(bytes, &self.limits)?;
        }
        self.make_room(bytes, connection.as_ref(), Some(newest))?;
        if let Some(connection) = &connection {
            connection.add_session(&self.limits)?;
        }
        let lease = lease
            .unwrap_or(self.limits.session_lease)
            .min(self.limits.session_lease_max);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name: Arc<str> = format!("{}{number:x}", session_prefix(self.name_prefix)).into();
        let now = self.clock.monotonic();
        let session = SessionEntry {
            name: Arc::clone(&name),
            number,
            connection,
            policy: Arc::clone(&policy),
            shared,
            revision,
            source,
            inner: ArcSwap::from_pointee(SessionState {
                recorded_result: None,
                cycle,
                applied: 0,
            }),
            changing: AtomicBool::new(false),
            own_bytes,
            copied_bytes: AtomicUsize::new(bytes),
            opened_at: now,
            lease,
            renewed_at: AtomicU64::new(millis(now)),
            active_queries: AtomicU32::new(0),
        };
        self.adjust_bytes(&session, bytes, 0);
        self.open.insert(Arc::clone(&name), Arc::new(session));
        Ok(OpenedSession {
            session: name,
            revision,
            policy,
            batch_outcome: None,
            lease,
            max_age: self.limits.session_age,
        })
    }

    /// Session of this name, if it has not ended.
    pub(crate) fn find(&self, name: &str) -> Result<SessionGuard, StateError> {
        let found = self
            .open
            .get(name)
            .map(|session| SessionGuard::new(Arc::clone(&session), Arc::clone(&self.clock)));
        let Some(busy) = found else {
            return Err(self.ended.error(name));
        };
        // A call does not revive a session that had expired before the call came.
        if let Some(why) = self.end_if_expired(&busy.0, 1) {
            return Err(StateError::SessionExpired {
                session: name.into(),
                why,
            });
        }
        Ok(busy)
    }

    /// Claims a session for a call that changes or ends it. If the session has ended between its lookup and the claim,
    /// the call fails with the same error as a later call and changes nothing.
    pub(crate) fn claim_open(&self, session: &Arc<SessionEntry>) -> Result<ChangeClaim, StateError> {
        let changing = session.claim()?;
        if self.open.contains_key(&session.name) {
            Ok(changing)
        } else {
            Err(self.ended.error(&session.name))
        }
    }

    /// Reason why a session has expired, if it has. `own`: number of calls in progress to ignore.
    fn expiry_reason(&self, session: &SessionEntry, own: u32) -> Option<&'static str> {
        let now = self.clock.monotonic();
        if now.saturating_sub(session.opened_at) > self.limits.session_age {
            return Some("it reached its maximum age");
        }
        let silent = millis(now).saturating_sub(session.renewed_at.load(Ordering::Acquire));
        let idle = session.active_queries.load(Ordering::Acquire) <= own;
        (idle && u128::from(silent) > session.lease.as_millis()).then_some("its lease ended")
    }

    /// Ends a session that has expired, unless a change or a commit of it is under way, which may still succeed.
    fn end_if_expired(&self, session: &Arc<SessionEntry>, own: u32) -> Option<&'static str> {
        self.expiry_reason(session, own)?;
        let _changing = session.claim().ok()?;
        let why = self.expiry_reason(session, own)?;
        if self.open.contains_key(&session.name) {
            self.end(session, false, why, None);
        }
        Some(why)
    }

    /// Ends a session. The caller holds its claim.
    fn end(&self, session: &SessionEntry, closed: bool, why: &'static str, outcome: Option<Arc<CommitOutcome>>) -> u64 {
        let applied = session.inner.load().applied;
        self.ended.insert(
            &session.name,
            EndedSession {
                ended_at: self.clock.monotonic(),
                closed,
                reason: why,
                commit_outcome: outcome,
                applied,
            },
        );
        if let Some((_, ended)) = self.open.remove(&session.name) {
            self.adjust_bytes(&ended, 0, ended.copied_bytes.swap(0, Ordering::AcqRel));
            if let Some(connection) = &ended.connection {
                connection.remove_session();
            }
        }
        applied
    }

    /// Ends a session that was committed.
    pub(crate) fn end_committed(&self, session: &SessionEntry, outcome: Arc<CommitOutcome>) {
        self.end(session, true, "it was committed", Some(outcome));
    }

    /// Ends expired sessions, and forgets sessions that ended long ago.
    pub(crate) fn sweep(&self) {
        let over = self
            .open
            .iter()
            .filter(|session| self.expiry_reason(session, 0).is_some());
        let over: Vec<Arc<SessionEntry>> = over.map(|session| Arc::clone(&session)).collect();
        for session in over {
            self.end_if_expired(&session, 0);
        }
        self.ended.sweep(self.clock.monotonic(), &self.limits);
    }

    /// Reserves room for the outcome of a commit with at most this many items.
    pub(crate) fn reserve_outcome(&self, items: usize) -> Result<OutcomeRoom<'_>, StateError> {
        let room = self.ended.reserve_outcome(items, &self.limits);
        room.or_else(|_| {
            self.ended.sweep(self.clock.monotonic(), &self.limits);
            self.ended.reserve_outcome(items, &self.limits)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn close(&self, name: &str) -> Result<u64, StateError> {
        if let Some(closed) = self.ended.closed_result(name) {
            return closed;
        }
        let busy = self.find(name)?;
        let changing = self.claim_open(&busy.0);
        // Another call may have closed or committed it since it was looked up: its outcome is the answer here, too.
        if let Some(closed) = self.ended.closed_result(name) {
            return closed;
        }
        let _changing = changing?;
        Ok(self.end(&busy.0, true, "it was closed", None))
    }
}
