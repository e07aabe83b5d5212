//! Layer around all calls: counts, times and logs each.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorInfo, StatusExt as _};
use tower::{Layer, Service};
use tracing::Instrument as _;
use tracing::field::Empty;

use super::metrics::Metrics;
use super::traces;
use crate::limits::{self, grpc_timeout};

/// Layer that measures every call.
#[derive(Clone, Debug)]
pub struct CallMetricsLayer(pub Arc<Metrics>);

impl<S> Layer<S> for CallMetricsLayer {
    type Service = CallMetricsService<S>;

    fn layer(&self, inner: S) -> CallMetricsService<S> {
        CallMetricsService {
            inner,
            metrics: Arc::clone(&self.0),
        }
    }
}

/// Service whose calls are measured.
#[derive(Clone, Debug)]
pub struct CallMetricsService<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B, R> Service<Request<B>> for CallMetricsService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rpc = rpc_of(request.uri().path());
        let call = MeasuredCall {
            metrics: Arc::clone(&self.metrics),
            rpc,
            start: Instant::now(),
            timeout: grpc_timeout(request.headers()),
            completed: false,
        };
        let path = request.uri().path().trim_start_matches('/');
        let (service, method) = path.split_once('/').unwrap_or((path, ""));
        let span = tracing::info_span!(
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
        );
        traces::join_caller_trace(&span, request.headers());
        let result = span.in_scope(|| self.inner.call(request));
        let measured = async move {
            let result = result.await;
            call.complete(result.as_ref().ok().map(Response::headers));
            result
        };
        Box::pin(measured.instrument(span))
    }
}

/// Counts the limit that the status of a stream names in its trailers. The call itself counted when its response began.
pub(crate) fn record_stream_end(metrics: &Metrics, trailers: &HeaderMap) {
    let status = Status::from_header_map(trailers).filter(|status| status.code() != Code::Ok);
    if let Some(status) = status {
        record_limit(metrics, status.get_details_error_info().as_ref());
    }
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
    completed: bool,
}

impl MeasuredCall {
    fn complete(mut self, headers: Option<&HeaderMap>) {
        self.completed = true;
        let Some(headers) = headers else {
            return self.record_end(Code::Unknown, "");
        };
        // Only the headers of a failed call have a code.
        let Some(status) = Status::from_header_map(headers) else {
            return self.record_end(Code::Ok, "");
        };
        let info = status.get_details_error_info();
        record_limit(&self.metrics, info.as_ref());
        self.record_end(status.code(), info.as_ref().map_or("", |info| &info.reason));
    }

    fn record_end(&self, code: Code, reason: &str) {
        let number = i64::from(i32::from(code));
        let (rpc, code, elapsed) = (self.rpc, code_name(code), self.start.elapsed());
        self.metrics.record_call(rpc, code, elapsed.as_secs_f64());
        let span = tracing::Span::current();
        span.record("code", code);
        span.record("rpc.grpc.status_code", number);
        if code != "OK" {
            span.record("otel.status_code", "ERROR");
        }
        let milliseconds = elapsed.as_secs_f64() * 1e3;
        if matches!(code, "INTERNAL" | "UNKNOWN" | "DATA_LOSS") {
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

/// Label of all other RPCs.
pub(super) const OTHER_RPC: &str = "other";

/// All RPCs that are counted by name; a caller must not be able to invent labels.
pub(super) const RPCS: &[&str] = &[
    "Filter",
    "Score",
    "Place",
    "Admit",
    "Order",
    "SelectVictims",
    "OpenSession",
    "CloseSession",
    "ListSessions",
    "CommitSession",
    "Apply",
    "Sync",
    "ForgetSource",
    "ForgetResource",
    "DeletePolicy",
    "GetNodeTable",
    "GetServerInfo",
    "ListNodes",
    "ListQueues",
    "ListJobs",
    "ListTasks",
    "ListReservations",
    "ReleaseReservation",
    "ReleaseAssumptions",
    "ReloadPolicy",
    "RollbackPolicy",
    "GetPolicy",
    "ListPolicies",
];

fn rpc_of(path: &str) -> &'static str {
    let own = path.strip_prefix("/pumice.v1.").and_then(|path| path.split_once('/'));
    let known = own.and_then(|(_, rpc)| RPCS.iter().find(|known| **known == rpc));
    known.copied().unwrap_or(OTHER_RPC)
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
    use super::*;
    use crate::server::pb;

    #[test]
    fn every_rpc_of_the_protocol_is_counted_by_name() {
        let pool = prost_reflect::DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
        let own = pool.services().filter(|service| service.package_name() == "pumice.v1");
        let methods: Vec<_> = own.flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        for method in &methods {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            assert_eq!(rpc_of(&path), method.name());
        }
        assert_eq!(methods.len(), RPCS.len(), "no other");
        assert_eq!(rpc_of("/pumice.v1.StateService/Invented"), OTHER_RPC);
    }
}
