//! Errors in Connect's format.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message as _;
use serde::Serialize;
use serde_json::value::RawValue;
use tonic::{Code, Status};

use crate::server::json::{detail_type, write_json};
use crate::server::retries::retry_delay;

/// Content type of messages and errors.
pub(super) const JSON: &str = "application/json";
/// Content type of streams, whose messages are in envelopes.
pub(super) const JSON_STREAM: &str = "application/connect+json";

/// Code, message and details of a failed call, as Connect names them.
#[derive(Serialize)]
struct CallErrorBody<'s> {
    code: &'static str,
    message: &'s str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<CallErrorDetail>,
}

/// Detail of an error: encoded for programs, and readable.
#[derive(Serialize)]
struct CallErrorDetail {
    #[serde(rename = "type")]
    name: String,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    debug: Option<Box<RawValue>>,
}

/// Body of a failed call: code, message and details.
pub(super) fn error_json(status: &Status) -> Vec<u8> {
    let error = CallErrorBody {
        code: connect_code(status.code()).0,
        message: status.message(),
        details: details(status),
    };
    // Only maps with keys that are not strings cannot be written.
    serde_json::to_vec(&error).unwrap_or_default()
}

fn details(status: &Status) -> Vec<CallErrorDetail> {
    let all = tonic_types::pb::Status::decode(status.details()).unwrap_or_default();
    let detail = |any: prost_types::Any| {
        let name = any.type_url.rsplit('/').next().unwrap_or_default().to_owned();
        let readable = detail_type(&name).and_then(|message| {
            let mut json = Vec::new();
            write_json(&mut json, &message, &any.value).ok()?;
            RawValue::from_string(String::from_utf8(json).ok()?).ok()
        });
        CallErrorDetail {
            name,
            value: STANDARD_NO_PAD.encode(&any.value),
            debug: readable,
        }
    };
    all.details.into_iter().map(detail).collect()
}

/// Response for a failed call.
pub(super) fn error_response(status: &Status) -> Response {
    let (_, http) = connect_code(status.code());
    let mut response = error_response_as(http, status);
    if let Some(delay) = retry_delay(status) {
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if http == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Response for a failed call, with an HTTP status of its own.
pub(super) fn error_response_as(http: StatusCode, status: &Status) -> Response {
    (http, [(header::CONTENT_TYPE, JSON)], error_json(status)).into_response()
}

/// Name and HTTP status of a code.
fn connect_code(code: Code) -> (&'static str, StatusCode) {
    match code {
        Code::Cancelled => (
            "canceled",
            StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        ),
        Code::Ok | Code::Unknown => ("unknown", StatusCode::INTERNAL_SERVER_ERROR),
        Code::InvalidArgument => ("invalid_argument", StatusCode::BAD_REQUEST),
        Code::DeadlineExceeded => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
        Code::NotFound => ("not_found", StatusCode::NOT_FOUND),
        Code::AlreadyExists => ("already_exists", StatusCode::CONFLICT),
        Code::PermissionDenied => ("permission_denied", StatusCode::FORBIDDEN),
        Code::ResourceExhausted => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
        Code::FailedPrecondition => ("failed_precondition", StatusCode::BAD_REQUEST),
        Code::Aborted => ("aborted", StatusCode::CONFLICT),
        Code::OutOfRange => ("out_of_range", StatusCode::BAD_REQUEST),
        Code::Unimplemented => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
        Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        Code::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Code::DataLoss => ("data_loss", StatusCode::INTERNAL_SERVER_ERROR),
        Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
    }
}
