//! Layer around all calls: records the number, duration and log line of each call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorInfo, StatusExt as _};
use tower::{Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument as _, Level, Span};

use super::metrics::Metrics;
use super::rpc_labels::{STREAMS, rpc_of};
use super::{TRACE_PARENT, traces};
use crate::limits::{self, grpc_timeout};

/// Layer that measures every call.
#[derive(Clone, Debug)]
pub struct CallMetricsLayer {
    metrics: Arc<Metrics>,
    exports_traces: bool,
}

impl CallMetricsLayer {
    /// Layer with these metrics. `exports_traces`: spans are sent to a collector and have the fields that only a
    /// collector reads.
    pub fn new(metrics: &Arc<Metrics>, exports_traces: bool) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            exports_traces,
        }
    }
}

impl<S> Layer<S> for CallMetricsLayer {
    type Service = CallMetricsService<S>;

    fn layer(&self, inner: S) -> CallMetricsService<S> {
        CallMetricsService {
            inner,
            metrics: Arc::clone(&self.metrics),
            exports_traces: self.exports_traces,
        }
    }
}

/// Service whose calls are measured.
#[derive(Clone, Debug)]
pub struct CallMetricsService<S> {
    inner: S,
    metrics: Arc<Metrics>,
    exports_traces: bool,
}

impl<S, B> Service<Request<B>> for CallMetricsService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rpc = rpc_of(request.uri().path());
        let (start, timeout) = (Instant::now(), grpc_timeout(request.headers()));
        let span = self.span(rpc, &request);
        let call = MeasuredCall {
            metrics: Arc::clone(&self.metrics),
            rpc,
            start,
            timeout,
            span: span.clone(),
            completed: false,
        };
        if span.is_disabled() {
            return Box::pin(measured(self.inner.call(request), call));
        }
        let result = span.in_scope(|| self.inner.call(request));
        Box::pin(measured(result, call).instrument(span))
    }
}

impl<S> CallMetricsService<S> {
    /// Span of a call that somebody reads: a collector, a caller who has a trace, or whoever reads a line about each call.
    /// Otherwise there is none.
    fn span<B>(&self, rpc: &'static str, request: &Request<B>) -> Span {
        let span = if self.exports_traces {
            exported_span(rpc, request.uri().path())
        } else if request.headers().contains_key(&TRACE_PARENT) || tracing::enabled!(Level::DEBUG) {
            tracing::info_span!("call", rpc, trace_id = Empty, code = Empty)
        } else {
            return Span::none();
        };
        traces::join_caller_trace(&span, request.headers());
        span
    }
}

/// Result of a call, recorded.
async fn measured<E>(
    result: impl Future<Output = Result<Response<Body>, E>>,
    call: MeasuredCall,
) -> Result<Response<Body>, E> {
    let result = result.await;
    let Ok(response) = result else {
        call.complete(None);
        return result;
    };
    // A failed call has its code in the headers, and no body; a stream that began has it at its end.
    if STREAMS.contains(&call.rpc) && Status::from_header_map(response.headers()).is_none() {
        return Ok(response.map(|inner| {
            Body::new(MeasuredStream {
                inner,
                call: Some(call),
            })
        }));
    }
    call.complete(Some(response.headers()));
    Ok(response)
}

/// Span of a call as a collector reads it.
fn exported_span(rpc: &'static str, path: &str) -> Span {
    let path = path.trim_start_matches('/');
    let (service, method) = path.split_once('/').unwrap_or((path, ""));
    tracing::info_span!(
        "call",
        rpc,
        trace_id = Empty,
        otel.name = path,
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

fn record_limit(metrics: &Metrics, info: Option<&ErrorInfo>) {
    let limit = info.and_then(|info| info.metadata.get("limit"));
    if let Some(limit) = limit.and_then(|limit| limits::limit_name(limit)) {
        metrics.record_limit_rejection(limit);
    }
}

/// Call under way. When it is dropped without a result, its caller has given up or its deadline has passed.
struct MeasuredCall {
    metrics: Arc<Metrics>,
    rpc: &'static str,
    start: Instant,
    timeout: Option<Duration>,
    span: Span,
    completed: bool,
}

impl MeasuredCall {
    /// Records the call with the code in the headers or trailers of its response. `None`: the call has no response.
    fn complete(mut self, headers: Option<&HeaderMap>) {
        if let Some(headers) = headers {
            // Only the headers of a failed call have a code.
            return self.complete_with(Status::from_header_map(headers).as_ref());
        }
        self.completed = true;
        self.record_end(Code::Unknown, "");
    }

    /// Records the call with this status. `None`: OK.
    fn complete_with(mut self, status: Option<&Status>) {
        self.completed = true;
        let Some(status) = status else {
            return self.record_end(Code::Ok, "");
        };
        let info = status.get_details_error_info();
        record_limit(&self.metrics, info.as_ref());
        self.record_end(status.code(), info.as_ref().map_or("", |info| &info.reason));
    }

    fn record_end(&self, code: Code, reason: &str) {
        let number = i64::from(i32::from(code));
        let is_server_error = matches!(code, Code::Internal | Code::Unknown | Code::DataLoss);
        let (rpc, code, elapsed) = (self.rpc, code_name(code), self.start.elapsed());
        self.metrics.record_call(rpc, code, elapsed.as_secs_f64());
        let span = &self.span;
        span.record("code", code);
        span.record("rpc.grpc.status_code", number);
        if code != "OK" {
            span.record("otel.status_code", "ERROR");
        }
        let _entered = span.enter();
        let milliseconds = elapsed.as_secs_f64() * 1e3;
        if is_server_error {
            self.metrics.record_server_error(rpc);
            tracing::error!(rpc, code, reason, milliseconds, "call failed");
        } else {
            tracing::debug!(rpc, code, reason, milliseconds, "call");
        }
    }
}

impl Drop for MeasuredCall {
    fn drop(&mut self) {
        if self.completed {
            return;
        }
        if std::thread::panicking() {
            return self.record_end(Code::Internal, "PANIC");
        }
        let late = self.timeout.is_some_and(|timeout| self.start.elapsed() >= timeout);
        self.record_end(if late { Code::DeadlineExceeded } else { Code::Cancelled }, "");
    }
}

/// Body of a stream, which is recorded with the code at its end. If it is dropped earlier, the caller has left.
struct MeasuredStream {
    inner: Body,
    call: Option<MeasuredCall>,
}

impl HttpBody for MeasuredStream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref()
                    && let Some(call) = self.call.take()
                {
                    call.complete(Some(trailers));
                }
            }
            Some(Err(status)) => {
                if let Some(call) = self.call.take() {
                    call.complete_with(Some(status));
                }
            }
            None => drop(self.call.take()),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt as _, service_fn};
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

    use super::*;

    /// True if a call with this header has a span while lines are filtered so.
    async fn has_span(filter: &str, header: &str) -> bool {
        let lines = tracing_subscriber::fmt::layer().with_filter(EnvFilter::new(filter));
        let _lines = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
        let service = service_fn(|_: Request<Body>| async {
            let seen = if Span::current().is_none() { "no" } else { "yes" };
            let mut response = Response::new(Body::default());
            response
                .headers_mut()
                .insert("span", axum::http::HeaderValue::from_static(seen));
            Ok::<_, Infallible>(response)
        });
        let layer = CallMetricsLayer::new(&Arc::new(Metrics::new()), false);
        let request = Request::get("/pumice.v1.DecisionService/Filter").header(header, "00-1-2-01");
        let response = layer
            .layer(service)
            .oneshot(request.body(Body::default()).unwrap())
            .await;
        response.unwrap().headers()["span"] == "yes"
    }

    #[tokio::test]
    async fn only_a_call_whose_span_somebody_reads_has_one() {
        assert!(!has_span("info", "other").await);
        assert!(has_span("info", "traceparent").await);
        assert!(has_span("info,pumice=debug", "other").await);
    }
}
