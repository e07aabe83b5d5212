//! Bodies of requests, bounded in bytes and in time: callers cannot hold unused memory.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{BODY_UNIT, HttpError};
use crate::limits::EdgeLimits;
use crate::telemetry::Metrics;

/// Body of a request, and its share of the bytes that all bodies may have.
#[derive(Debug)]
pub(super) struct HeldBody {
    pub(super) bytes: axum::body::Bytes,
    _share: OwnedSemaphorePermit,
}

/// Reads the body of a request.
///
/// # Errors
/// Its length is missing or too large, the memory budget is exhausted, or it does not arrive in time.
pub(super) async fn read_body(
    request: Request<Body>,
    bodies: &Arc<Semaphore>,
    limits: &EdgeLimits,
    metrics: &Metrics,
) -> Result<HeldBody, HttpError> {
    let header = request.headers().get(axum::http::header::CONTENT_LENGTH);
    let Some(length) = header.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) else {
        let text = "the request has no Content-Length, by which the server holds room for it".to_owned();
        return Err((StatusCode::LENGTH_REQUIRED, text));
    };
    let most = limits.extender_body_bytes;
    if length > most {
        metrics.record_limit_rejection("extender_body_bytes");
        let text = format!(
            "the body has {length} bytes, more than limit `extender_body_bytes` ({most}) allows; set nodeCacheCapable, \
             which sends names instead of nodes, or raise the limit"
        );
        return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let units = u32::try_from(length.div_ceil(BODY_UNIT).max(1)).unwrap_or(u32::MAX);
    let Ok(share) = Arc::clone(bodies).try_acquire_many_owned(units) else {
        metrics.record_limit_rejection("extender_receiving_bytes");
        let text = format!(
            "bodies of other requests take the room that limit `extender_receiving_bytes` ({}) allows",
            limits.extender_receiving_bytes
        );
        return Err((StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let body = axum::body::to_bytes(request.into_body(), length);
    match tokio::time::timeout(limits.request_body, body).await {
        Ok(Ok(bytes)) => Ok(HeldBody { bytes, _share: share }),
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("the body did not come whole: {error}"))),
        Err(_) => {
            metrics.record_limit_rejection("request_body_ms");
            let text = format!(
                "the body did not come within limit `request_body_ms` ({})",
                limits.request_body.as_millis()
            );
            Err((StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}
