//! Sessions that have ended: how, and the outcomes of commits.
//!
//! The outcome of a commit is stored for `tombstone_age`, independently of other callers: a commit is rejected before
//! its evaluation if the table is full. Other ended sessions are stored while the table has free capacity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use super::commit_outcome::CommitOutcome;
use crate::error::{StateError, limit_error};
use crate::limits::StateLimits;
use crate::store::LogNews;

/// Record of a session that has ended.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub(crate) ended_at: Duration,
    pub(crate) closed: bool,
    pub(crate) reason: &'static str,
    /// Recorded response for a retry; `None`: the session was not committed.
    pub(crate) commit_outcome: Option<Arc<CommitOutcome>>,
    pub(crate) applied: u64,
}

impl EndedSession {
    /// Items charged for the outcome of the session's commit. `None`: the session ended without a commit.
    fn outcome_items(&self) -> Option<usize> {
        Some(counted_items(self.commit_outcome.as_ref()?.item_count()))
    }
}

/// Items charged for an outcome: at least one, because an empty outcome also takes memory.
fn counted_items(items: usize) -> usize {
    items.max(1)
}

/// Ended sessions, by name.
#[derive(Debug, Default)]
pub(crate) struct EndedSessions {
    by_name: DashMap<Arc<str>, EndedSession>,
    /// Items of all outcomes of commits, including commits in progress.
    outcome_items: AtomicUsize,
    /// Other servers, which may have the sessions that this one does not know.
    news: Arc<LogNews>,
}

/// Reserved capacity for the outcome of a commit. Dropping it frees the capacity; from then on the outcome itself is
/// charged.
#[derive(Debug)]
pub(crate) struct OutcomeRoom<'e> {
    ended: &'e EndedSessions,
    items: usize,
}

impl Drop for OutcomeRoom<'_> {
    fn drop(&mut self) {
        self.ended.outcome_items.fetch_sub(self.items, Ordering::AcqRel);
    }
}

impl EndedSessions {
    /// No sessions yet, beside these other servers.
    pub(crate) fn new(news: Arc<LogNews>) -> Self {
        Self {
            news,
            ..Self::default()
        }
    }

    pub(crate) fn insert(&self, session: &Arc<str>, ended: EndedSession) {
        self.outcome_items
            .fetch_add(ended.outcome_items().unwrap_or(0), Ordering::AcqRel);
        self.by_name.insert(Arc::clone(session), ended);
    }

    /// Reserves room for the outcome of a commit with at most this many items.
    ///
    /// # Errors
    /// The outcomes that are remembered leave no room.
    pub(crate) fn reserve_outcome(&self, items: usize, limits: &StateLimits) -> Result<OutcomeRoom<'_>, StateError> {
        let (items, most) = (counted_items(items), limits.commit_outcomes);
        let with_these = |now: usize| now.checked_add(items).filter(|all| *all <= most);
        let reserved = self
            .outcome_items
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, with_these);
        match reserved {
            Ok(_) => Ok(OutcomeRoom { ended: self, items }),
            Err(now) => {
                let message = format!(
                    "the outcomes of commits that are remembered have {now} jobs, tasks and conflicts, and this commit may \
                     add {items}: the oldest are forgotten after `tombstone_age_ms`"
                );
                Err(limit_error("commit_outcomes", most, message))
            }
        }
    }

    /// Forgets sessions that ended long ago, and the oldest sessions without a commit that exceed the limit.
    pub(crate) fn sweep(&self, now: Duration, limits: &StateLimits) {
        let mut uncommitted: Vec<(Duration, Arc<str>)> = Vec::new();
        self.by_name.retain(|name, ended| {
            let items = ended.outcome_items();
            let is_young = now.saturating_sub(ended.ended_at) <= limits.tombstone_age;
            match items {
                Some(items) if !is_young => {
                    self.outcome_items.fetch_sub(items, Ordering::AcqRel);
                }
                None if is_young => uncommitted.push((ended.ended_at, Arc::clone(name))),
                Some(_) | None => {}
            }
            is_young
        });
        let excess = uncommitted.len().saturating_sub(limits.tombstones);
        if excess > 0 {
            uncommitted.sort_unstable();
            for (_, name) in uncommitted.iter().take(excess) {
                self.by_name.remove(name);
            }
        }
    }

    /// Outcome of a session's commit, if it was committed and is still remembered.
    pub(crate) fn commit_outcome(&self, session: &str) -> Option<Arc<CommitOutcome>> {
        self.by_name.get(session)?.commit_outcome.clone()
    }

    /// Number of the last change of a session.
    pub(crate) fn applied(&self, session: &str) -> Option<u64> {
        Some(self.by_name.get(session)?.applied)
    }

    /// Error of a call on a session that is not open.
    pub(crate) fn error(&self, session: &str) -> StateError {
        match self.by_name.get(session) {
            Some(ended) => StateError::SessionExpired {
                session: session.into(),
                why: ended.reason,
            },
            None => StateError::SessionUnknown {
                session: session.into(),
                server: self.news.server_of_session(session).unwrap_or_default().into(),
            },
        }
    }

    /// Result of closing a session that has ended already.
    pub(crate) fn closed_result(&self, session: &str) -> Option<Result<u64, StateError>> {
        let ended = self.by_name.get(session)?;
        Some(if ended.closed {
            Ok(ended.applied)
        } else {
            Err(StateError::SessionExpired {
                session: session.into(),
                why: ended.reason,
            })
        })
    }
}
