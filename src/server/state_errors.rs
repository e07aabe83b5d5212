//! Errors of the state as errors of calls.

use std::time::Duration;

use tokio::time::Instant;

use super::convert;
use super::retries::RetryTurns;
use super::status::{CallError, PUMICE};
use pumice_engine::model::ErrorCode;
use pumice_engine::short_lock::ShortLock;
use pumice_state::{LimitHolder, PolicyError, StateError};

/// Delay before a retry after a connection held too much: the turns of others do not depend on it.
const SHARE_RETRY: Duration = Duration::from_millis(250);
/// Delay before a retry after an error of the store.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// Time after which one more caller may retry that a limit of the state rejected.
const TURN_TIME: Duration = Duration::from_millis(5);
/// Turns of the callers that limits of the state rejected.
static LIMIT_TURNS: ShortLock<RetryTurns> = ShortLock::new(RetryTurns::new());

impl From<StateError> for CallError {
    fn from(error: StateError) -> Self {
        let failure = Self::new(error.code(), error.to_string());
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
            StateError::Limit {
                limit, value, holder, ..
            } => {
                let failure = failure
                    .with_entry("limit", limit)
                    .with_entry("value", value.to_string());
                match holder {
                    LimitHolder::Request => failure,
                    LimitHolder::Connection => failure.retry_after(SHARE_RETRY),
                    LimitHolder::Callers => {
                        failure.retry_after(LIMIT_TURNS.with(|turns| turns.next_delay(TURN_TIME, Instant::now())))
                    }
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
            PolicyError::Rejected(rejection) => Self::new(ErrorCode::PolicyRejected, message)
                .with_entry("policy", &*rejection.name)
                .with_entry("serving", rejection.serving.to_string())
                .with_policy_report(convert::policy::policy_report(&rejection.report)),
            PolicyError::VersionMismatch { name, active, .. } => Self::new(ErrorCode::VersionMismatch, message)
                .with_entry("policy", &*name)
                .with_entry("active", active.to_string()),
            PolicyError::UnknownPolicy { name } => {
                Self::new(ErrorCode::PolicyUnknown, message).with_entry("policy", &*name)
            }
            PolicyError::UnknownVersion { name, version } => Self::new(ErrorCode::VersionUnknown, message)
                .with_entry("policy", &*name)
                .with_entry("version", version.to_string()),
            PolicyError::InvalidName { .. } => Self::new(ErrorCode::PolicyNameInvalid, message),
            PolicyError::State(error) => error.into(),
        }
    }
}
