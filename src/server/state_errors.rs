//! Errors of the state as errors of calls.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::convert;
use super::retry_turns::RetryTurns;
use super::status::{CallError, PUMICE, grpc_code};
use pumice_engine::short_lock::ShortLock;
use pumice_state::{PolicyError, StateError};

/// Limits that usually have free capacity again soon: a retry may succeed.
const TRANSIENT_LIMITS: [&str; 4] = ["assumptions", "queued_writes", "session_bytes", "sessions"];
/// Limits of one connection that fall below their value again as soon as its caller frees something.
const TRANSIENT_SHARES: [&str; 2] = ["connection_session_bytes", "connection_sessions"];
/// Delay before a retry after a connection held too much: the turns of others do not depend on it.
const SHARE_RETRY: Duration = Duration::from_millis(250);
/// Delay before a retry after an error of the store.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// Time after which one more caller may retry that a limit of the state rejected.
const TURN_TIME: Duration = Duration::from_millis(5);
/// Turns of the callers that limits of the state rejected.
static LIMIT_TURNS: ShortLock<RetryTurns> = ShortLock::new(RetryTurns::new());

/// gRPC code of an error of the state.
fn state_error_code(error: &StateError) -> Code {
    match error {
        StateError::EpochChanged { .. }
        | StateError::NotReached { .. }
        | StateError::SessionExpired { .. }
        | StateError::SequenceGap { .. }
        | StateError::SequenceMismatch { .. }
        | StateError::SourceActive { .. }
        | StateError::ResourceInUse { .. }
        | StateError::ResyncNeeded { .. } => Code::FailedPrecondition,
        StateError::SessionUnknown { .. }
        | StateError::SourceUnknown { .. }
        | StateError::ResourceUnknown { .. }
        | StateError::PolicyUnknown { .. }
        | StateError::ProfileUnknown(_) => Code::NotFound,
        StateError::SessionInline { .. } | StateError::JobsRepeated | StateError::NothingNamed => Code::InvalidArgument,
        StateError::Aborted { .. } | StateError::NamesForgotten => Code::Aborted,
        StateError::ChangeRejected { problem, .. }
        | StateError::BatchInvalid { problem }
        | StateError::QueryRejected { problem } => grpc_code(problem.kind),
        StateError::Limit { .. } => Code::ResourceExhausted,
        StateError::Store(_) | StateError::UnknownOutcome { .. } | StateError::ShuttingDown => Code::Unavailable,
    }
}

impl From<StateError> for CallError {
    fn from(error: StateError) -> Self {
        let code = state_error_code(&error);
        let failure = Self::new(code, error.reason(), error.to_string());
        let failure = match error.applied_through() {
            Some(applied) => failure.with_applied_through(applied),
            None => failure,
        };
        match error {
            StateError::EpochChanged { epoch } => failure.with_entry("epoch", epoch.to_string()),
            StateError::NotReached { newest } => failure
                .with_entry("epoch", newest.epoch.to_string())
                .with_entry("number", newest.number.to_string()),
            StateError::SessionExpired { session, .. } | StateError::SessionInline { session } => {
                failure.with_entry("session", &*session)
            }
            StateError::SessionUnknown { session, server } => {
                let failure = failure.with_entry("session", &*session);
                if server.is_empty() {
                    return failure;
                }
                failure.with_entry("server", &*server)
            }
            StateError::SequenceGap { applied, .. } | StateError::SequenceMismatch { applied, .. } => {
                failure.with_entry("applied_through", applied.to_string())
            }
            StateError::ChangeRejected { problem, .. }
            | StateError::BatchInvalid { problem }
            | StateError::QueryRejected { problem } => failure.with_entry("field", problem.field),
            StateError::ResyncNeeded { outcome } => {
                let outcome = convert::batch::batch_outcome(*outcome);
                failure.with_detail(PUMICE, "BatchOutcome", &outcome)
            }
            StateError::PolicyUnknown { name } => failure.with_entry("policy", &*name),
            StateError::SourceUnknown { name } | StateError::SourceActive { name, .. } => {
                failure.with_entry("source", &*name)
            }
            StateError::ResourceUnknown { name } | StateError::ResourceInUse { name, .. } => {
                failure.with_entry("resource", &*name)
            }
            StateError::ProfileUnknown(unknown) => failure.with_entry("profile", &unknown.profile),
            StateError::Limit { limit, value, .. } => {
                let failure = failure
                    .with_entry("limit", limit)
                    .with_entry("value", value.to_string());
                if TRANSIENT_LIMITS.contains(&limit) {
                    failure.retry_after(LIMIT_TURNS.with(|turns| turns.next_delay(TURN_TIME, Instant::now())))
                } else if TRANSIENT_SHARES.contains(&limit) {
                    failure.retry_after(SHARE_RETRY)
                } else {
                    failure
                }
            }
            // Without a delay: a client repeats only what it may repeat after a lost response.
            StateError::UnknownOutcome { key, .. } => failure.with_entry("key", key),
            StateError::Store(_) | StateError::NamesForgotten => failure.retry_after(STORE_RETRY),
            StateError::JobsRepeated
            | StateError::NothingNamed
            | StateError::Aborted { .. }
            | StateError::ShuttingDown => failure,
        }
    }
}

impl From<PolicyError> for CallError {
    fn from(error: PolicyError) -> Self {
        let message = error.to_string();
        match error {
            PolicyError::Rejected(rejection) => Self::invalid("POLICY_REJECTED", message)
                .with_entry("policy", &*rejection.name)
                .with_entry("serving", rejection.serving.to_string())
                .with_policy_report(convert::policy::policy_report(&rejection.report)),
            PolicyError::VersionMismatch { name, active, .. } => Self::new(Code::Aborted, "VERSION_MISMATCH", message)
                .with_entry("policy", &*name)
                .with_entry("active", active.to_string()),
            PolicyError::UnknownPolicy { name } => {
                Self::not_found("POLICY_UNKNOWN", message).with_entry("policy", &*name)
            }
            PolicyError::UnknownVersion { name, version } => Self::not_found("VERSION_UNKNOWN", message)
                .with_entry("policy", &*name)
                .with_entry("version", version.to_string()),
            PolicyError::InvalidName { .. } => Self::invalid("POLICY_NAME_INVALID", message),
            PolicyError::State(error) => error.into(),
        }
    }
}
