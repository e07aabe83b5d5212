//! gRPC responses as responses of Connect's protocol.

use axum::http::{HeaderMap, Response, header};
use axum::response::IntoResponse as _;
use futures_util::StreamExt as _;
use futures_util::stream::{once, unfold};
use http_body::Frame;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use prost::bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tonic::body::Body;
use tonic::{Code, Status};

use super::connect_errors::{JSON, JSON_STREAM, error_json, error_response};
use crate::server::request_body::{PREFIX_BYTES, message_bytes};

/// Flag of the last envelope of a stream.
const END_OF_STREAM: u8 = 2;

/// Response of a call with one response: its message, in the pieces in which it is written to the connection.
pub(super) async fn unary(response: Response<Body>) -> axum::response::Response {
    let (parts, mut body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        return error_response(&status);
    }
    while let Some(frame) = body.frame().await {
        let mut data = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => data,
            Ok(Err(frame)) => match frame.trailers_ref().and_then(failure) {
                Some(status) => return error_response(&status),
                None => break,
            },
            Err(status) => return error_response(&status),
        };
        if let Some(length) = message_bytes(&data) {
            data.advance(PREFIX_BYTES);
            let message = once(std::future::ready(Ok(Frame::data(data)))).chain(BodyStream::new(body));
            let headers = [
                (header::CONTENT_TYPE, JSON.to_owned()),
                (header::CONTENT_LENGTH, length.to_string()),
            ];
            return (headers, axum::body::Body::new(StreamBody::new(message))).into_response();
        }
    }
    error_response(&Status::unknown("the response has no message"))
}

/// Status in trailers, unless the call succeeded.
fn failure(trailers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(trailers).filter(|status| status.code() != Code::Ok)
}

/// Response of a call with a stream of responses. Its messages keep their prefixes, which are the envelopes; instead of
/// trailers it has one last envelope, which contains the error if there is one.
pub(super) fn stream(response: Response<Body>) -> axum::response::Response {
    let (parts, inner) = response.into_parts();
    let body = if let Some(status) = Status::from_header_map(&parts.headers) {
        axum::body::Body::from(last_envelope(Some(&status)))
    } else {
        let envelopes = unfold(Some(inner), async |inner| {
            let mut inner = inner?;
            let (data, rest) = match inner.frame().await.transpose().map(|frame| frame.map(Frame::into_data)) {
                Ok(Some(Ok(data))) => (data, Some(inner)),
                Ok(Some(Err(frame))) => (last_envelope(frame.trailers_ref().and_then(failure).as_ref()), None),
                Ok(None) => (last_envelope(Some(&Status::unknown("the response has no end"))), None),
                Err(status) => (last_envelope(Some(&status)), None),
            };
            Some((Ok::<_, Status>(Frame::data(data)), rest))
        });
        axum::body::Body::new(StreamBody::new(envelopes))
    };
    ([(header::CONTENT_TYPE, JSON_STREAM)], body).into_response()
}

fn last_envelope(error: Option<&Status>) -> Bytes {
    let content = match error {
        None => b"{}".to_vec(),
        Some(status) => [&b"{\"error\":"[..], &error_json(status), b"}"].concat(),
    };
    let mut end = BytesMut::with_capacity(PREFIX_BYTES + content.len());
    end.put_u8(END_OF_STREAM);
    end.put_u32(u32::try_from(content.len()).unwrap_or_default());
    end.put_slice(&content);
    end.freeze()
}
