//! What stands before every call: how many there are at once, and how long its caller waits.

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
use super::status::Failure;

/// When a caller that was refused may come again.
const RETRY: Duration = Duration::from_millis(250);
/// The refusal goes out so long before the caller gives up, and before the transport would call it cancelled.
const MARGIN: Duration = Duration::from_millis(1);
/// How the transport begins to say that a message is too large.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// Admits calls.
#[derive(Clone, Debug)]
pub struct AdmissionLayer {
    calls: Arc<Semaphore>,
    limit: usize,
    request_bytes: usize,
}

impl AdmissionLayer {
    /// Within these limits.
    pub fn new(limits: &EdgeLimits) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(limits.calls.min(Semaphore::MAX_PERMITS))),
            limit: limits.calls,
            request_bytes: limits.request_bytes,
        }
    }

    fn admit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let message = "so many calls are under way, or their answers are not taken";
            Failure::limit("OVERLOADED", "calls", self.limit, message).retry_after(RETRY)
        })
    }

    /// The transport's refusal of a large message, in this service's words.
    fn in_own_words(&self, answer: Response<Body>) -> Response<Body> {
        let large = Status::from_header_map(answer.headers())
            .is_some_and(|status| status.code() == Code::OutOfRange && status.message().starts_with(TOO_LARGE));
        if large {
            let message = "the request is larger than this server takes";
            refusal(Failure::limit(
                "REQUEST_TOO_LARGE",
                "request_bytes",
                self.request_bytes,
                message,
            ))
        } else {
            answer
        }
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admission<S>;

    fn layer(&self, inner: S) -> Admission<S> {
        Admission {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose calls are admitted.
#[derive(Clone, Debug)]
pub struct Admission<S> {
    inner: S,
    layer: AdmissionLayer,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S, B> Service<Request<B>> for Admission<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Health is asked for just when there is too much to do.
        if !request.uri().path().starts_with("/pumice.") {
            return Box::pin(self.inner.call(request));
        }
        let permit = match self.layer.admit() {
            Ok(permit) => permit,
            Err(failure) => return Box::pin(std::future::ready(Ok(refusal(failure)))),
        };
        let patience = timeout(request.headers()).map(|timeout| timeout.saturating_sub(MARGIN));
        let call = self.inner.call(request);
        let layer = self.layer.clone();
        Box::pin(async move {
            let answer = match patience {
                None => call.await?,
                Some(patience) => {
                    let Ok(answer) = tokio::time::timeout(patience, call).await else {
                        return Ok(too_late());
                    };
                    answer?
                }
            };
            let answer = layer.in_own_words(answer);
            Ok(answer.map(|body| Body::new(Held { body, _permit: permit })))
        })
    }
}

fn too_late() -> Response<Body> {
    let message = "the caller's deadline is past; the work was given up";
    refusal(Failure::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message))
}

fn refusal(failure: Failure) -> Response<Body> {
    Status::from(failure).into_http()
}

/// An answer on its way: it counts as a call until it is taken or its caller is gone.
struct Held {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Held {
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

/// The time that a caller gives a call, from its `grpc-timeout`.
pub(crate) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    read_timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}

/// `grpc-timeout`: up to eight digits and a unit.
pub(super) fn read_timeout(text: &str) -> Option<Duration> {
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
    async fn a_call_is_over_at_its_deadline_and_leaves_its_place() {
        let limits = EdgeLimits {
            calls: 1,
            ..EdgeLimits::default()
        };
        let never = service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Status>>());
        let service = AdmissionLayer::new(&limits).layer(never);
        for _ in 0..2 {
            let request = Request::get("/pumice.v1.DecisionService/Score").header("grpc-timeout", "5m");
            let answer = service.clone().oneshot(request.body(()).unwrap()).await.unwrap();
            let status = Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        }
    }
}
