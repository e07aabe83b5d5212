//! Throttling of calls: bounds the number of calls under way, and enforces each caller's deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::limits::EdgeLimits;
use super::status::CallError;

/// Delay before a rejected caller may retry.
const THROTTLE_RETRY: Duration = Duration::from_millis(250);
/// Time before the caller's deadline at which the error is sent, so that it arrives before the transport cancels the
/// call.
const DEADLINE_MARGIN: Duration = Duration::from_millis(1);
/// Beginning of the transport's message about a request that is too large.
const TOO_LARGE_PREFIX: &str = "Error, decoded message length too large";

/// Layer that throttles calls.
#[derive(Clone, Debug)]
pub struct ThrottleLayer {
    calls: Arc<Semaphore>,
    limit: usize,
    request_bytes: usize,
}

impl ThrottleLayer {
    /// Layer with these limits.
    pub fn new(limits: &EdgeLimits) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(limits.calls.min(Semaphore::MAX_PERMITS))),
            limit: limits.calls,
            request_bytes: limits.request_bytes,
        }
    }

    fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, CallError> {
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let message = "too many calls are under way, or their responses are not taken";
            CallError::limit("OVERLOADED", "calls", self.limit, message).retry_after(THROTTLE_RETRY)
        })
    }

    /// Rewrites the transport's error about a large request in this service's words.
    fn rewrite_too_large(&self, result: Response<Body>) -> Response<Body> {
        let large = Status::from_header_map(result.headers())
            .is_some_and(|status| status.code() == Code::OutOfRange && status.message().starts_with(TOO_LARGE_PREFIX));
        if large {
            let message = "the request is larger than this server accepts";
            error_response(CallError::limit(
                "REQUEST_TOO_LARGE",
                "request_bytes",
                self.request_bytes,
                message,
            ))
        } else {
            result
        }
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = CallThrottle<S>;

    fn layer(&self, inner: S) -> CallThrottle<S> {
        CallThrottle {
            inner,
            layer: self.clone(),
        }
    }
}

/// Service whose calls are throttled.
#[derive(Clone, Debug)]
pub struct CallThrottle<S> {
    inner: S,
    layer: ThrottleLayer,
}

type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S, B> Service<Request<B>> for CallThrottle<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Health checks always pass: probes ask when the server is busiest.
        if !request.uri().path().starts_with("/pumice.") {
            return Box::pin(self.inner.call(request));
        }
        let permit = match self.layer.acquire_permit() {
            Ok(permit) => permit,
            Err(failure) => return Box::pin(std::future::ready(Ok(error_response(failure)))),
        };
        let patience = grpc_timeout(request.headers()).map(|timeout| timeout.saturating_sub(DEADLINE_MARGIN));
        let call = self.inner.call(request);
        let layer = self.layer.clone();
        Box::pin(async move {
            let result = match patience {
                None => call.await?,
                Some(patience) => {
                    let Ok(result) = tokio::time::timeout(patience, call).await else {
                        return Ok(deadline_response());
                    };
                    result?
                }
            };
            let result = layer.rewrite_too_large(result);
            Ok(result.map(|body| Body::new(ThrottledBody { body, _permit: permit })))
        })
    }
}

fn deadline_response() -> Response<Body> {
    let message = "the caller's deadline has passed; the work was cancelled";
    error_response(CallError::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message))
}

fn error_response(failure: CallError) -> Response<Body> {
    Status::from(failure).into_http()
}

/// Body of a response under way. It counts as a call until it is taken or its caller is gone.
struct ThrottledBody {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for ThrottledBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Time that a caller gives a call in `grpc-timeout`.
pub(crate) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    parse_grpc_timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}

/// Parses `grpc-timeout`: up to eight digits and a unit.
pub(super) fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_call_ends_at_its_deadline_and_frees_its_permit() {
        let limits = EdgeLimits {
            calls: 1,
            ..EdgeLimits::default()
        };
        let never = service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Status>>());
        let service = ThrottleLayer::new(&limits).layer(never);
        for _ in 0..2 {
            let request = Request::get("/pumice.v1.DecisionService/Score").header("grpc-timeout", "5m");
            let result = service.clone().oneshot(request.body(()).unwrap()).await.unwrap();
            let status = Status::from_header_map(result.headers()).unwrap();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        }
    }
}
