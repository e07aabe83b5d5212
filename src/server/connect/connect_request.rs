//! Requests of Connect's protocol as gRPC requests.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::once;
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tonic::Status;
use tonic::body::Body;

use super::connect_errors::{JSON, JSON_STREAM, error_response_as};
use super::same_site::{CallExposure, check_origin};
use crate::server::codec::JsonCall;
use crate::server::json::method_at;
use crate::server::request_body::{ENCODING, PREFIX_BYTES};

/// Headers of the caller that the layers read.
static FORWARDED: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Call for the services.
pub(super) struct ConnectCall {
    /// True if its messages are in envelopes.
    pub(super) is_stream: bool,
    pub(super) request: Request<Body>,
}

impl ConnectCall {
    /// Reads the head of a call. Its body is read by the layers.
    ///
    /// # Errors
    /// The connection or the site may not call, or the head is not one of this protocol.
    pub(super) fn read(request: Request<axum::body::Body>, exposure: CallExposure) -> Result<Self, Box<Response>> {
        let (mut parts, body) = request.into_parts();
        let headers = &parts.headers;
        let is_allowed = exposure.check_connection(&parts.extensions).map_err(str::to_owned);
        is_allowed
            .and_then(|()| exposure.check_host(headers, &parts.extensions))
            .and_then(|()| check_origin(headers))
            .map_err(|reason| rejected(StatusCode::FORBIDDEN, reason))?;
        let method = method_at(parts.uri.path());
        let is_stream = method.is_some_and(|method| method.is_client_streaming() || method.is_server_streaming());
        let (wanted, encoding) = if is_stream {
            (JSON_STREAM, HeaderName::from_static("connect-content-encoding"))
        } else {
            (JSON, header::CONTENT_ENCODING)
        };
        let media = header_text(headers, &header::CONTENT_TYPE)
            .split(';')
            .next()
            .unwrap_or_default();
        if !media.trim().eq_ignore_ascii_case(wanted) {
            let message = format!("the content type of this method is {wanted}");
            return Err(rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let mut forwarded = grpc_headers(headers)?;
        let encoding = headers.get(encoding);
        let body = if is_stream {
            Body::new(body)
        } else {
            framed(headers, encoding.is_some_and(|encoding| encoding == "gzip"), body)?
        };
        if let Some(encoding) = encoding {
            forwarded.insert(ENCODING.clone(), encoding.clone());
        }
        parts.headers = forwarded;
        if let Some(method) = method {
            parts.extensions.insert(JsonCall(method));
        }
        let request = Request::from_parts(parts, body);
        Ok(Self { is_stream, request })
    }
}

/// Rejection before the call begins.
#[expect(
    clippy::unnecessary_box_returns,
    reason = "errors of calls are boxed, because a response is large"
)]
fn rejected(http: StatusCode, message: impl Into<String>) -> Box<Response> {
    let status = match http {
        StatusCode::FORBIDDEN => Status::permission_denied(message),
        _ => Status::invalid_argument(message),
    };
    tracing::debug!(%http, reason = status.message(), "a call over HTTP is rejected before it begins");
    Box::new(error_response_as(http, &status))
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

/// Headers of the gRPC request, without its encoding.
fn grpc_headers(headers: &HeaderMap) -> Result<HeaderMap, Box<Response>> {
    let mut forwarded = HeaderMap::new();
    for name in &FORWARDED {
        for value in headers.get_all(name) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    forwarded.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if headers
        .get("connect-protocol-version")
        .is_some_and(|version| version != "1")
    {
        let message = "Connect-Protocol-Version is not 1, the only version of this server";
        return Err(rejected(StatusCode::BAD_REQUEST, message));
    }
    let timeout = HeaderName::from_static("connect-timeout-ms");
    if headers.contains_key(&timeout) {
        let digits = header_text(headers, &timeout);
        let milliseconds = digits.parse::<u64>().ok().filter(|_| digits.len() <= 10);
        // gRPC's timeouts have at most 8 digits.
        let text = milliseconds.map(|time| {
            if time < 100_000_000 {
                format!("{time}m")
            } else {
                format!("{}S", time / 1_000)
            }
        });
        let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) else {
            let message = "Connect-Timeout-Ms is not a number of milliseconds with at most 10 digits";
            return Err(rejected(StatusCode::BAD_REQUEST, message));
        };
        forwarded.insert(HeaderName::from_static("grpc-timeout"), value);
    }
    Ok(forwarded)
}

/// Body of a gRPC call: the same body behind the prefix of a message.
fn framed(headers: &HeaderMap, is_compressed: bool, body: axum::body::Body) -> Result<Body, Box<Response>> {
    let Ok(length) = header_text(headers, &header::CONTENT_LENGTH).parse::<u32>() else {
        let message = "the request has no Content-Length, which the server needs, or it is too large";
        return Err(rejected(StatusCode::LENGTH_REQUIRED, message));
    };
    let mut prefix = BytesMut::with_capacity(PREFIX_BYTES);
    prefix.put_u8(is_compressed.into());
    prefix.put_u32(length);
    let prefix = once(std::future::ready(Ok(Frame::<Bytes>::data(prefix.freeze()))));
    Ok(Body::new(StreamBody::new(prefix.chain(BodyStream::new(body)))))
}
