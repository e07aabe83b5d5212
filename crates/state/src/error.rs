//! Errors of requests on state.

use std::sync::Arc;
use std::time::Duration;

use crate::intake::batch_outcome::BatchOutcome;
use crate::policies::rejected_document::RejectedDocument;
use crate::store::StoreError;
use pumice_engine::Revision;
use pumice_engine::model::{ErrorCode, Problem};
use pumice_engine::policy::UnknownProfileError;

/// Error of a request on state that failed as a whole.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StateError {
    /// The caller's revision is from an earlier start of the server.
    #[error("the server was restarted: its epoch is {epoch} now, start over")]
    EpochChanged {
        /// Epoch of this start.
        epoch: u64,
    },
    /// The requested state did not become visible in time.
    #[error("the requested state was not reached in time; the newest revision is {}", newest.number)]
    NotReached {
        /// Newest revision.
        newest: Revision,
    },
    /// The session was closed, or its lease or its age ended.
    #[error("session `{session}` has ended: {why}")]
    SessionExpired {
        /// Name of the session.
        session: Arc<str>,
        /// Reason why it ended.
        why: &'static str,
    },
    /// The session never existed on this server, or the server no longer remembers it.
    #[error("session `{session}` is not known to this server{}", elsewhere(server))]
    SessionUnknown {
        /// Name of the session.
        session: Arc<str>,
        /// Address of the server that opened the session. Empty: unknown.
        server: Arc<str>,
    },
    /// Changes before the request's own are missing.
    #[error("changes {applied} + 1 to {after} are missing")]
    SequenceGap {
        /// Number of the last applied change.
        applied: u64,
        /// Number of the change after which the caller wants to continue.
        after: u64,
    },
    /// The request is about another state of the session than its current one.
    #[error("the request is about the state after change {wanted}, but the session is at change {applied}")]
    SequenceMismatch {
        /// Number of the last applied change.
        applied: u64,
        /// Number of the change that the request names.
        wanted: u64,
    },
    /// Another call is changing the session.
    #[error("another call is changing the session; only one may at a time")]
    Aborted {
        /// Number of the last applied change.
        applied: u64,
    },
    /// The session is on a cluster of its own: its commit would have no shared state to change.
    #[error("session `{session}` is on a cluster of its own; only a session on shared state can be committed")]
    SessionInline {
        /// Name of the session.
        session: Arc<str>,
    },
    /// A commit names a job twice.
    #[error("jobs: a job is named twice")]
    JobsRepeated,
    /// Neither a session nor a task was named.
    #[error("tasks: name the tasks, or the session whose commit made the assumptions")]
    NothingNamed,
    /// A change cannot be applied, so no change of the call was.
    #[error("{}", problem.message)]
    ChangeRejected {
        /// Problem of the change.
        problem: Problem,
        /// Number of the last applied change.
        applied: u64,
    },
    /// The batch that comes with the request was not taken.
    #[error("the batch was not taken: {}", outcome.resync.as_ref().map_or("", |resync| &resync.message))]
    ResyncNeeded {
        /// Outcome of the batch.
        outcome: Box<BatchOutcome>,
    },
    /// The source does not exist.
    #[error("there is no source `{name}`")]
    SourceUnknown {
        /// The source.
        name: Arc<str>,
    },
    /// The source has sent a batch within `source_stale`.
    #[error(
        "source `{name}` was heard {} s ago, within `source_stale_ms` ({}): stop it first, or force its removal",
        silence.as_secs(), least.as_millis()
    )]
    SourceActive {
        /// The source.
        name: Arc<str>,
        /// Time since the last batch of the source.
        silence: Duration,
        /// Silence that makes its removal safe.
        least: Duration,
    },
    /// The resource name does not exist.
    #[error("there is no resource `{name}`")]
    ResourceUnknown {
        /// Name of the resource.
        name: Arc<str>,
    },
    /// Records use the resource.
    #[error("resource `{name}` is used by {users}: remove or change these records first")]
    ResourceInUse {
        /// Name of the resource.
        name: Arc<str>,
        /// The records.
        users: String,
    },
    /// A resource name was forgotten while a batch with it was on its way.
    #[error("a resource name of the batch was forgotten while the batch was read; send the batch again")]
    NamesForgotten,
    /// No policy has that name.
    #[error("there is no policy `{name}`")]
    PolicyUnknown {
        /// Name of the policy.
        name: Arc<str>,
    },
    /// The policy has no such profile.
    #[error("{0}")]
    ProfileUnknown(UnknownProfileError),
    /// The batch contradicts itself.
    #[error("{}: {}", problem.field, problem.message)]
    BatchInvalid {
        /// Field and problem.
        problem: Problem,
    },
    /// A limit would be exceeded.
    #[error("limit `{limit}` is {value}: {message}")]
    Limit {
        /// Name of the limit, as in the settings.
        limit: &'static str,
        /// Value of the limit.
        value: u64,
        /// Holder of the amount that is missing.
        holder: LimitHolder,
        /// Explanation of what exceeds the limit.
        message: String,
    },
    /// The request cannot be evaluated.
    #[error("{}: {}", problem.field, problem.message)]
    QueryRejected {
        /// Field and problem.
        problem: Problem,
    },
    /// The store failed: nothing was changed.
    #[error("nothing was written: {0}")]
    Store(StoreError),
    /// The store did not say whether it has the change. It takes effect if the log has it.
    #[error("it is not known whether this was written ({error}): {key} settles it: repeat the call, or look for it")]
    UnknownOutcome {
        /// Key of the call, such as the job and its attempt.
        key: String,
        /// Error of the store.
        error: StoreError,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Where a session is open, as the end of a message.
fn elsewhere(server: &str) -> String {
    if server.is_empty() {
        return String::new();
    }
    format!("; the server at {server} opened it: ask there, or open another one here")
}

impl StateError {
    /// Error of a change that the store failed to write. `key`: what its call is known by.
    pub(crate) fn of_write(error: StoreError, key: impl FnOnce() -> String) -> Self {
        if matches!(error, StoreError::Unknown { .. }) {
            return Self::UnknownOutcome { key: key(), error };
        }
        Self::Store(error)
    }

    /// True if the store failed.
    pub(crate) fn is_of_store(&self) -> bool {
        matches!(self, Self::Store(_) | Self::UnknownOutcome { .. })
    }

    /// Error of one of several calls that were written together.
    #[must_use]
    pub fn about(self, key: &str) -> Self {
        if let Self::UnknownOutcome { error, .. } = self {
            let key = key.to_owned();
            return Self::UnknownOutcome { key, error };
        }
        self
    }

    /// Name of the code on the wire.
    pub fn reason(&self) -> &'static str {
        self.code().name()
    }

    /// Code for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::EpochChanged { .. } => ErrorCode::EpochChanged,
            Self::NotReached { .. } => ErrorCode::RevisionNotReached,
            Self::SessionExpired { .. } => ErrorCode::SessionExpired,
            Self::SessionUnknown { .. } => ErrorCode::SessionUnknown,
            Self::SequenceGap { .. } => ErrorCode::SequenceGap,
            Self::SequenceMismatch { .. } => ErrorCode::SequenceMismatch,
            Self::Aborted { .. } => ErrorCode::SessionBusy,
            Self::SessionInline { .. } => ErrorCode::SessionInline,
            Self::JobsRepeated => ErrorCode::JobDuplicate,
            Self::NothingNamed => ErrorCode::SelectionMissing,
            Self::ResyncNeeded { .. } => ErrorCode::ResyncNeeded,
            Self::PolicyUnknown { .. } => ErrorCode::PolicyUnknown,
            Self::SourceUnknown { .. } => ErrorCode::SourceUnknown,
            Self::SourceActive { .. } => ErrorCode::SourceActive,
            Self::ResourceUnknown { .. } => ErrorCode::ResourceUnknown,
            Self::ResourceInUse { .. } => ErrorCode::ResourceInUse,
            Self::NamesForgotten => ErrorCode::ResourceForgotten,
            Self::ProfileUnknown(_) => ErrorCode::ProfileUnknown,
            Self::ChangeRejected { problem, .. } | Self::BatchInvalid { problem } | Self::QueryRejected { problem } => {
                problem.code
            }
            Self::Store(_) => ErrorCode::StoreFailed,
            Self::UnknownOutcome { .. } => ErrorCode::OutcomeUnknown,
            Self::Limit { .. } => ErrorCode::LimitExceeded,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }

    /// Number of the session's last applied change. `None`: the error does not refer to a session, or the number is
    /// unknown.
    pub fn applied_through(&self) -> Option<u64> {
        match self {
            Self::SequenceGap { applied, .. }
            | Self::SequenceMismatch { applied, .. }
            | Self::Aborted { applied }
            | Self::ChangeRejected { applied, .. } => Some(*applied),
            Self::EpochChanged { .. }
            | Self::NotReached { .. }
            | Self::SessionExpired { .. }
            | Self::SessionUnknown { .. }
            | Self::SessionInline { .. }
            | Self::JobsRepeated
            | Self::NothingNamed
            | Self::ResyncNeeded { .. }
            | Self::PolicyUnknown { .. }
            | Self::SourceUnknown { .. }
            | Self::SourceActive { .. }
            | Self::ResourceUnknown { .. }
            | Self::ResourceInUse { .. }
            | Self::NamesForgotten
            | Self::ProfileUnknown(_)
            | Self::BatchInvalid { .. }
            | Self::QueryRejected { .. }
            | Self::Store(_)
            | Self::UnknownOutcome { .. }
            | Self::Limit { .. }
            | Self::ShuttingDown => None,
        }
    }
}

/// Holder of the amounts that a limit bounds, which decides whether a retry may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHolder {
    /// The request itself: a retry fails as well.
    Request,
    /// The caller's connection: a retry succeeds when its caller has freed something.
    Connection,
    /// All callers: the limit usually has free capacity again soon.
    Callers,
}

/// Error of a change to a policy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The document has errors. The active version does not change.
    #[error("{0}")]
    Rejected(Box<RejectedDocument>),
    /// The active version is not the version that the caller expected.
    #[error("policy `{name}` is at version {active}, not at the expected {expected}")]
    VersionMismatch {
        /// Name of the policy, such as `default`.
        name: Arc<str>,
        /// Active version. 0: none.
        active: u64,
        /// Version that the caller expected.
        expected: u64,
    },
    /// No policy has that name.
    #[error("there is no policy `{name}`")]
    UnknownPolicy {
        /// Name that does not exist.
        name: Arc<str>,
    },
    /// The policy has no such version, or no longer stores it.
    #[error("policy `{name}` has no version {version}, or no longer stores it")]
    UnknownVersion {
        /// Name of the existing policy.
        name: Arc<str>,
        /// Number of the version.
        version: u64,
    },
    /// The name is not a valid policy name.
    #[error("`{name}` is not a policy name: at most 63 of a–z, 0–9 and `-`, alphanumeric at both ends")]
    InvalidName {
        /// Rejected name.
        name: Arc<str>,
    },
    /// A limit would be exceeded, or the server is shutting down.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Error: a limit would be exceeded, whatever others hold.
pub(crate) fn limit_error(limit: &'static str, value: usize, message: String) -> StateError {
    held_limit_error(LimitHolder::Request, limit, value, message)
}

/// Error: a limit would be exceeded until its holder gives something back.
pub(crate) fn held_limit_error(holder: LimitHolder, limit: &'static str, value: usize, message: String) -> StateError {
    StateError::Limit {
        limit,
        value: value as u64,
        holder,
        message,
    }
}
