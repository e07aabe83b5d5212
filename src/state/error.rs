//! Why a request on state failed as a whole.

use std::sync::Arc;
use std::time::Duration;

use super::batch::BatchOutcome;
use super::policies::RejectedDocument;
use crate::engine::Revision;
use crate::engine::model::Problem;
use crate::engine::policy::UnknownProfileError;
use crate::store::StoreError;

/// Why a request on state failed as a whole.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StateError {
    /// The caller's revision is of another start of the server.
    #[error("the server was restarted: its epoch is {epoch} now, start over")]
    EpochChanged {
        /// The epoch now.
        epoch: u64,
    },
    /// The state that was asked for did not become visible in time.
    #[error("the state that was asked for was not reached in time; the newest is revision {}", newest.number)]
    NotReached {
        /// The newest revision.
        newest: Revision,
    },
    /// The session was closed, or its lease or its age ended.
    #[error("session `{session}` has ended: {why}")]
    SessionExpired {
        /// The session.
        session: Arc<str>,
        /// How it ended.
        why: &'static str,
    },
    /// The server has never heard of the session, or has forgotten it.
    #[error("session `{session}` is not known here")]
    SessionUnknown {
        /// The session.
        session: Arc<str>,
    },
    /// Changes were left out.
    #[error("changes {applied} + 1 to {after} are missing")]
    SequenceGap {
        /// Number of the last applied change.
        applied: u64,
        /// Number after which the caller wanted to go on.
        after: u64,
    },
    /// The question was to see another state of the session than it is in.
    #[error("the question is about the state after change {wanted}, the session is at {applied}")]
    SequenceMismatch {
        /// Number of the last applied change.
        applied: u64,
        /// Number that the question named.
        wanted: u64,
    },
    /// Another call is changing the session.
    #[error("another call is changing the session; only one may at a time")]
    Aborted {
        /// Number of the last applied change.
        applied: u64,
    },
    /// The session stands on a cluster of its own: there is nothing to commit to.
    #[error("session `{session}` stands on a cluster of its own; only one on shared state can be committed")]
    SessionInline {
        /// The session.
        session: Arc<str>,
    },
    /// A commit names a job twice.
    #[error("jobs: one stands there twice")]
    JobsRepeated,
    /// Neither a session nor a task was named.
    #[error("tasks: name the tasks, or the session whose commit made the assumptions")]
    NothingNamed,
    /// A change cannot be applied, so none of the call was.
    #[error("{}", problem.message)]
    ChangeRejected {
        /// The change and why.
        problem: Problem,
        /// Number of the last applied change.
        applied: u64,
    },
    /// The scheduler's own changes could not be taken in.
    #[error("the batch was not taken in: {}", outcome.resync.as_ref().map_or("", |resync| &resync.message))]
    ResyncNeeded {
        /// What became of the batch.
        outcome: Box<BatchOutcome>,
    },
    /// No source of that name is known.
    #[error("there is no source `{name}`")]
    SourceUnknown {
        /// The source.
        name: Arc<str>,
    },
    /// The source was heard a moment ago.
    #[error(
        "source `{name}` was heard {} s ago, within `source_stale_ms` ({}): stop it first, or force its removal",
        silence.as_secs(), least.as_millis()
    )]
    SourceActive {
        /// The source.
        name: Arc<str>,
        /// Time since it was heard.
        silence: Duration,
        /// Silence that makes its removal safe.
        least: Duration,
    },
    /// There is no policy of that name.
    #[error("there is no policy `{name}`")]
    PolicyUnknown {
        /// The name.
        name: Arc<str>,
    },
    /// The policy has no such profile.
    #[error("{0}")]
    ProfileUnknown(UnknownProfileError),
    /// The batch contradicts itself.
    #[error("{}: {}", problem.field, problem.message)]
    BatchInvalid {
        /// Field and fault.
        problem: Problem,
    },
    /// A limit would be exceeded.
    #[error("limit `{limit}` is {value}: {message}")]
    Limit {
        /// The limit's name, as in the settings.
        limit: &'static str,
        /// Its value.
        value: u64,
        /// What would exceed it.
        message: String,
    },
    /// The question cannot be asked.
    #[error("{}: {}", problem.field, problem.message)]
    QueryRejected {
        /// Field and fault.
        problem: Problem,
    },
    /// The store failed: nothing was changed.
    #[error("nothing was written: {0}")]
    Store(StoreError),
    /// The server is going down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl StateError {
    /// Stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::EpochChanged { .. } => "EPOCH_CHANGED",
            Self::NotReached { .. } => "REVISION_NOT_REACHED",
            Self::SessionExpired { .. } => "SESSION_EXPIRED",
            Self::SessionUnknown { .. } => "SESSION_UNKNOWN",
            Self::SequenceGap { .. } => "SEQUENCE_GAP",
            Self::SequenceMismatch { .. } => "SEQUENCE_MISMATCH",
            Self::Aborted { .. } => "SESSION_BUSY",
            Self::SessionInline { .. } => "SESSION_INLINE",
            Self::JobsRepeated => "JOBS_REPEATED",
            Self::NothingNamed => "SELECTION_MISSING",
            Self::ResyncNeeded { .. } => "RESYNC_NEEDED",
            Self::PolicyUnknown { .. } => "POLICY_UNKNOWN",
            Self::SourceUnknown { .. } => "SOURCE_UNKNOWN",
            Self::SourceActive { .. } => "SOURCE_ACTIVE",
            Self::ProfileUnknown(_) => "PROFILE_UNKNOWN",
            Self::ChangeRejected { problem, .. } | Self::BatchInvalid { problem } | Self::QueryRejected { problem } => {
                problem.reason
            }
            Self::Store(_) => "STORE_FAILED",
            Self::Limit { .. } => "LIMIT_EXCEEDED",
            Self::ShuttingDown => "SHUTTING_DOWN",
        }
    }

    /// In a session: the number of the last applied change, if it is known.
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
            | Self::ProfileUnknown(_)
            | Self::BatchInvalid { .. }
            | Self::QueryRejected { .. }
            | Self::Store(_)
            | Self::Limit { .. }
            | Self::ShuttingDown => None,
        }
    }
}

/// Why a policy was not changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The document has faults; the one in force goes on serving.
    #[error("{0}")]
    Rejected(Box<RejectedDocument>),
    /// Another version is in force than the caller expected.
    #[error("policy `{name}` is at version {active}, not at the expected {expected}")]
    VersionMismatch {
        /// The policy.
        name: Arc<str>,
        /// The version in force; 0: none.
        active: u64,
        /// The version that was expected.
        expected: u64,
    },
    /// There is no such policy.
    #[error("there is no policy `{name}`")]
    UnknownPolicy {
        /// The name.
        name: Arc<str>,
    },
    /// There is no such version, or it is no longer kept.
    #[error("policy `{name}` has no version {version}, or it is no longer kept")]
    UnknownVersion {
        /// The policy.
        name: Arc<str>,
        /// The version.
        version: u64,
    },
    /// The name cannot name a policy.
    #[error("`{name}` is not a policy name: at most 63 of a–z, 0–9 and `-`, alphanumeric at both ends")]
    InvalidName {
        /// The name.
        name: Arc<str>,
    },
    /// A limit would be exceeded, or the server is going down.
    #[error(transparent)]
    State(#[from] StateError),
}
