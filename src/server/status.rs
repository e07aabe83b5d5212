//! Errors of whole calls as gRPC statuses with details.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, Status as RpcStatus, bad_request::FieldViolation};

use crate::limits::limit_name;
use crate::server::pb;
use pumice_engine::model::{ErrorClass, ErrorCode, Problem};

/// Domain of the reasons in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "pumice";
/// Longest message. Java clients reject trailers of more than 8 KiB, which contain the message twice, once as base64.
const MESSAGE_BYTES: usize = 1_000;
/// Longest value beside the message: names may come from the caller.
const VALUE_BYTES: usize = 300;
/// Maximum bytes of the list of fields or diagnostics, which the trailers contain as base64.
const LIST_BYTES: usize = 3_000;
const GOOGLE: &str = "type.googleapis.com/google.rpc.";
pub(super) const PUMICE: &str = "type.googleapis.com/pumice.v1.";

/// Error of a whole call.
#[derive(Clone, Debug)]
pub struct CallError {
    code: ErrorCode,
    message: String,
    metadata: BTreeMap<String, String>,
    details: Vec<Any>,
    /// Delay before a retry.
    retry: Option<Duration>,
}

/// Result of a call, or of a part of one.
pub type RpcResult<T> = Result<T, CallError>;

impl CallError {
    /// Error with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            metadata: BTreeMap::new(),
            details: Vec::new(),
            retry: None,
        }
    }

    /// Error: a number is not a value of an enumeration.
    pub(super) fn unknown_value(field: &str, value: i32) -> Self {
        Self::new(ErrorCode::EnumInvalid, format!("invalid {field}: {value}"))
    }

    /// Error: a limit, named as in the settings, would be exceeded.
    pub fn limit(name: &'static str, limit: usize, message: &str) -> Self {
        Self::limit_as(ErrorCode::LimitExceeded, name, limit, message)
    }

    /// Error of this code: a limit, named as in the settings, would be exceeded.
    pub(super) fn limit_as(code: ErrorCode, name: &'static str, limit: usize, message: &str) -> Self {
        Self::new(code, format!("{message} (limit `{name}` is {limit})"))
            .with_entry("limit", name)
            .with_entry("value", limit.to_string())
    }

    /// Error of this server itself; the log has more detail than the caller gets.
    pub fn internal(what: &'static str) -> Self {
        tracing::error!(what, "internal error");
        Self::new(ErrorCode::Internal, "internal error")
    }

    /// Error for the first of some problems; the details list all.
    pub fn from_problems(problems: &[Problem]) -> Self {
        let Some(first) = problems.first() else {
            return Self::internal("a rejection without a problem");
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
                reason: problem.code.name().to_owned(),
                localized_message: None,
            });
            if fields.encoded_len() > LIST_BYTES {
                fields.field_violations.pop();
                break;
            }
        }
        Self::new(first.code, message).with_detail(GOOGLE, "BadRequest", &fields)
    }

    /// Adds a measurement or a name that programs may want.
    #[must_use]
    pub fn with_entry(mut self, name: &str, value: impl Into<String>) -> Self {
        let mut value = value.into();
        value.truncate(value.floor_char_boundary(VALUE_BYTES));
        self.metadata.insert(name.to_owned(), value);
        self
    }

    /// Limit that was reached, if one was.
    pub(super) fn reached_limit(&self) -> Option<&'static str> {
        limit_name(self.metadata.get("limit")?)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Delay after which the caller may retry, if it may.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        self.retry
    }

    /// Adds the delay after which the caller may retry.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry = Some(delay);
        let retry = RetryInfo {
            retry_delay: prost_types::Duration::try_from(delay).ok(),
        };
        self.with_detail(GOOGLE, "RetryInfo", &retry)
    }

    /// Adds the metadata of a session, with its last applied change.
    #[must_use]
    pub fn with_response_metadata(self, metadata: &pb::ResponseMetadata) -> Self {
        self.with_detail(PUMICE, "ResponseMetadata", metadata)
    }

    /// Adds metadata with only the last applied change of the session, unless the error already has metadata.
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

    /// Adds the report of a rejected policy. Of a long report only the first diagnostics are added, and the number of
    /// the others.
    #[must_use]
    pub fn with_policy_report(self, mut report: pb::PolicyReport) -> Self {
        let found = report.diagnostics.len();
        while report.encoded_len() > LIST_BYTES && report.diagnostics.pop().is_some() {}
        let left_out = found - report.diagnostics.len();
        if left_out > 0 {
            report.diagnostics.push(pb::Diagnostic {
                severity: pb::Severity::Error.into(),
                code: ErrorCode::DiagnosticsOmitted.name().to_owned(),
                message: format!("{left_out} more diagnostics are left out here"),
                ..pb::Diagnostic::default()
            });
        }
        self.with_detail(PUMICE, "PolicyReport", &report)
    }

    /// gRPC code of the error.
    pub fn code(&self) -> Code {
        grpc_code(self.code.class())
    }

    /// Code; its class decides the gRPC code.
    pub fn error_code(&self) -> ErrorCode {
        self.code
    }

    /// Name of the code on the wire.
    pub fn reason(&self) -> &'static str {
        self.code.name()
    }

    pub(super) fn with_detail(mut self, package: &str, name: &str, message: &impl Message) -> Self {
        self.details.push(any(package, name, message));
        self
    }
}

impl From<CallError> for Status {
    fn from(failure: CallError) -> Self {
        let CallError {
            code,
            mut message,
            metadata,
            mut details,
            retry: _,
        } = failure;
        if message.len() > MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
            message.push('…');
        }
        let info = ErrorInfo {
            reason: code.name().to_owned(),
            domain: DOMAIN.to_owned(),
            metadata: metadata.into_iter().collect(),
        };
        details.insert(0, any(GOOGLE, "ErrorInfo", &info));
        let code = grpc_code(code.class());
        let rpc = RpcStatus {
            code: code.into(),
            message: message.clone(),
            details,
        };
        Self::with_details(code, message, rpc.encode_to_vec().into())
    }
}

/// Checks a number against a limit, named as in the settings. `message`: which number it is.
///
/// # Errors
/// The number is greater.
pub(super) fn check_limit(
    number: usize,
    name: &'static str,
    limit: usize,
    message: impl FnOnce() -> String,
) -> RpcResult<()> {
    if number <= limit {
        return Ok(());
    }
    Err(CallError::limit(name, limit, &message()))
}

/// Error of a request that cannot be evaluated at all.
impl From<Problem> for CallError {
    fn from(problem: Problem) -> Self {
        Self::from_problems(&[problem])
    }
}

/// gRPC code for a class of codes.
pub fn grpc_code(class: ErrorClass) -> Code {
    match class {
        ErrorClass::Invalid => Code::InvalidArgument,
        ErrorClass::NotFound => Code::NotFound,
        ErrorClass::Precondition => Code::FailedPrecondition,
        ErrorClass::Aborted => Code::Aborted,
        ErrorClass::Exhausted => Code::ResourceExhausted,
        ErrorClass::Unserved => Code::Unimplemented,
        ErrorClass::Unavailable => Code::Unavailable,
        ErrorClass::Unauthenticated => Code::Unauthenticated,
        ErrorClass::PermissionDenied => Code::PermissionDenied,
        ErrorClass::Cancelled => Code::Cancelled,
        ErrorClass::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorClass::Internal => Code::Internal,
    }
}

fn any(package: &str, name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("{package}{name}"),
        value: message.encode_to_vec(),
    }
}
