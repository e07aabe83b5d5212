//! The one table: what went wrong with a whole call, as a gRPC status with details.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, Status as RpcStatus, bad_request::FieldViolation};

use crate::engine::model::{Problem, ProblemKind};
use crate::server::{convert, pb};
use crate::state::{PolicyError, StateError};

/// Whose reasons these are, in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "pumice";
/// Longest message. Clients in Java refuse trailers of more than 8 KiB, in which it stands twice, once in base64.
const MESSAGE_BYTES: usize = 1_000;
/// Longest figure or name beside the message: names may be the caller's.
const VALUE_BYTES: usize = 300;
/// Most bytes of the list of fields or findings, which stands in the trailers as base64.
const LIST_BYTES: usize = 3_000;
/// Limits that are soon below their value again, so that trying again is of use.
const TRANSIENT_LIMITS: [&str; 4] = ["assumptions", "queued_writes", "session_bytes", "sessions"];
/// When to try again.
const TRANSIENT_RETRY: Duration = Duration::from_millis(500);
const GOOGLE: &str = "type.googleapis.com/google.rpc.";
const PUMICE: &str = "type.googleapis.com/pumice.v1.";

/// Why a whole call failed.
#[derive(Clone, Debug)]
pub struct CallError {
    code: Code,
    reason: &'static str,
    message: String,
    metadata: BTreeMap<String, String>,
    details: Vec<Any>,
}

impl CallError {
    /// A failure with a stable reason word and a sentence.
    pub fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            metadata: BTreeMap::new(),
            details: Vec::new(),
        }
    }

    /// The caller's request is wrong whatever the state is.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, reason, message)
    }

    /// Something named is not there.
    pub fn not_found(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, reason, message)
    }

    /// The state is not as the caller takes it to be.
    pub fn precondition(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, reason, message)
    }

    /// A bound would be exceeded.
    pub fn exhausted(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, reason, message)
    }

    /// A limit, named as in the settings, would be exceeded.
    pub fn limit(reason: &'static str, name: &'static str, limit: usize, message: &str) -> Self {
        Self::exhausted(reason, format!("{message} (limit `{name}` is {limit})"))
            .with_entry("limit", name)
            .with_entry("value", limit.to_string())
    }

    /// A fault of this server; the log says more than the caller is told.
    pub fn internal(what: &'static str) -> Self {
        tracing::error!(what, "internal error");
        Self::new(Code::Internal, "INTERNAL", "internal error")
    }

    /// The first of some problems, which are all listed.
    pub fn from_problems(problems: &[Problem]) -> Self {
        let Some(first) = problems.first() else {
            return Self::internal("a refusal without a problem");
        };
        let message = match problems.len() {
            1 => format!("{}: {}", first.field, first.message),
            many => format!("{}: {} (and {} more)", first.field, first.message, many - 1),
        };
        let mut fields = BadRequest::default();
        for problem in problems {
            fields.field_violations.push(FieldViolation {
                field: problem.field.clone(),
                description: problem.message.clone(),
                reason: problem.reason.to_owned(),
                localized_message: None,
            });
            if fields.encoded_len() > LIST_BYTES {
                fields.field_violations.pop();
                break;
            }
        }
        Self::new(grpc_code(first.kind), first.reason, message).with_detail(GOOGLE, "BadRequest", &fields)
    }

    /// A figure or name that programs may want, beside the message.
    #[must_use]
    pub fn with_entry(mut self, name: &str, value: impl Into<String>) -> Self {
        let mut value = value.into();
        value.truncate(value.floor_char_boundary(VALUE_BYTES));
        self.metadata.insert(name.to_owned(), value);
        self
    }

    /// When the caller may try again.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        let retry = RetryInfo {
            retry_delay: prost_types::Duration::try_from(delay).ok(),
        };
        self.with_detail(GOOGLE, "RetryInfo", &retry)
    }

    /// The stamp of a session, which says how far it came.
    #[must_use]
    pub fn with_response_metadata(self, metadata: &pb::ResponseMetadata) -> Self {
        self.with_detail(PUMICE, "ResponseMetadata", metadata)
    }

    /// A stamp that says only how far the session came, if there is none yet.
    #[must_use]
    pub fn with_applied_through(self, applied_through: u64) -> Self {
        if self
            .details
            .iter()
            .any(|detail| detail.type_url.ends_with(".ResponseMetadata"))
        {
            return self;
        }
        let effects = pb::SessionEffects {
            applied_through,
            ..pb::SessionEffects::default()
        };
        self.with_response_metadata(&pb::ResponseMetadata {
            effects: Some(effects),
            ..pb::ResponseMetadata::default()
        })
    }

    /// The report of a refused policy; if it is long, its first findings and how many are left out.
    #[must_use]
    pub fn with_policy_report(self, mut report: pb::PolicyReport) -> Self {
        let found = report.diagnostics.len();
        while report.encoded_len() > LIST_BYTES && report.diagnostics.pop().is_some() {}
        let left_out = found - report.diagnostics.len();
        if left_out > 0 {
            report.diagnostics.push(pb::Diagnostic {
                severity: pb::Severity::Error.into(),
                code: "MORE_DIAGNOSTICS".to_owned(),
                message: format!("{left_out} more findings are left out here"),
                ..pb::Diagnostic::default()
            });
        }
        self.with_detail(PUMICE, "PolicyReport", &report)
    }

    /// The gRPC code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The stable reason word.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    fn with_detail(mut self, package: &str, name: &str, message: &impl Message) -> Self {
        self.details.push(any(package, name, message));
        self
    }
}

impl From<CallError> for Status {
    fn from(failure: CallError) -> Self {
        let CallError {
            code,
            reason,
            mut message,
            metadata,
            mut details,
        } = failure;
        if message.len() > MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
            message.push('…');
        }
        let info = ErrorInfo {
            reason: reason.to_owned(),
            domain: DOMAIN.to_owned(),
            metadata: metadata.into_iter().collect(),
        };
        details.insert(0, any(GOOGLE, "ErrorInfo", &info));
        let rpc = RpcStatus {
            code: code.into(),
            message: message.clone(),
            details,
        };
        Self::with_details(code, message, rpc.encode_to_vec().into())
    }
}

/// A question that cannot be asked at all.
impl From<Problem> for CallError {
    fn from(problem: Problem) -> Self {
        Self::from_problems(&[problem])
    }
}

/// gRPC code of an error of the state.
fn state_error_code(error: &StateError) -> Code {
    match error {
        StateError::EpochChanged { .. }
        | StateError::NotReached { .. }
        | StateError::SessionExpired { .. }
        | StateError::SequenceGap { .. }
        | StateError::SequenceMismatch { .. }
        | StateError::SourceActive { .. }
        | StateError::ResyncNeeded { .. } => Code::FailedPrecondition,
        StateError::SessionUnknown { .. }
        | StateError::SourceUnknown { .. }
        | StateError::PolicyUnknown { .. }
        | StateError::ProfileUnknown(_) => Code::NotFound,
        StateError::SessionInline { .. } | StateError::JobsRepeated | StateError::NothingNamed => Code::InvalidArgument,
        StateError::Aborted { .. } => Code::Aborted,
        StateError::ChangeRejected { problem, .. }
        | StateError::BatchInvalid { problem }
        | StateError::QueryRejected { problem } => grpc_code(problem.kind),
        StateError::Limit { .. } => Code::ResourceExhausted,
        StateError::Store(_) | StateError::ShuttingDown => Code::Unavailable,
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
            StateError::SessionExpired { session, .. } | StateError::SessionUnknown { session } => {
                failure.with_entry("session", &*session)
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
            StateError::ProfileUnknown(unknown) => failure.with_entry("profile", &unknown.profile),
            StateError::Limit { limit, value, .. } => {
                let failure = failure
                    .with_entry("limit", limit)
                    .with_entry("value", value.to_string());
                if TRANSIENT_LIMITS.contains(&limit) {
                    failure.retry_after(TRANSIENT_RETRY)
                } else {
                    failure
                }
            }
            StateError::Store(_) => failure.retry_after(TRANSIENT_RETRY),
            StateError::SessionInline { session } => failure.with_entry("session", &*session),
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

/// The code of a problem.
pub fn grpc_code(kind: ProblemKind) -> Code {
    match kind {
        ProblemKind::Invalid => Code::InvalidArgument,
        ProblemKind::NotFound => Code::NotFound,
        ProblemKind::FailedPrecondition => Code::FailedPrecondition,
        ProblemKind::Exhausted => Code::ResourceExhausted,
        ProblemKind::Unserved => Code::Unimplemented,
    }
}

fn any(package: &str, name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("{package}{name}"),
        value: message.encode_to_vec(),
    }
}
