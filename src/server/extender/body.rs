//! Bodies of requests: within the length that they announce, and within a budget of bytes.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};

use super::{ExtenderFront, HttpError};
use crate::server::connection::CallerConnection;
use crate::server::request_body::ReceivedMessage;
use pumice_engine::model::ErrorCode;

impl ExtenderFront {
    /// Receives the body of a request.
    ///
    /// # Errors
    /// Its length is missing or too large, the memory budget is exhausted, or it does not arrive in time.
    pub(super) async fn read_body(&self, request: Request<Body>) -> Result<ReceivedMessage, HttpError> {
        let (metrics, most) = (&self.edge.metrics, self.edge.read_options.limits.extender_body_bytes);
        let header = request.headers().get(header::CONTENT_LENGTH);
        let Some(length) = header.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) else {
            let text = "the request has no Content-Length, which the server needs".to_owned();
            return Err((StatusCode::LENGTH_REQUIRED, text));
        };
        if length > most {
            metrics.record_limit_rejection("extender_body_bytes");
            let text = format!(
                "the body has {length} bytes, more than limit `extender_body_bytes` ({most}) allows; set nodeCacheCapable, \
                 which sends names instead of nodes"
            );
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let (body, connection) = (request.into_body(), CallerConnection::unknown());
        let received = self.bodies.receive_whole(body, &connection, false).await;
        received.map_err(|failure| {
            if let Some(limit) = failure.reached_limit() {
                metrics.record_limit_rejection(limit);
            }
            let status = if failure.error_code() == ErrorCode::Overloaded {
                StatusCode::SERVICE_UNAVAILABLE
            } else if failure.error_code() == ErrorCode::RequestTooSlow {
                StatusCode::REQUEST_TIMEOUT
            } else {
                StatusCode::BAD_REQUEST
            };
            (status, failure.message().to_owned())
        })
    }
}
