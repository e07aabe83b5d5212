//! Throttling of calls: bounds what is received, worked on and sent for all callers and for each connection, and enforces
//! each caller's deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response};
use http_body_util::Full;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tower::{Layer, Service};

use super::connection::{CallScope, CallerConnection, ConnectionCall};
use super::large_messages::LargeMessageGate;
use super::memory_budget::MemoryBudget;
use super::request_body::{ACCEPTED_ENCODINGS, BodyReceiver, failure_of_transport, may_be_compressed};
use super::response_body::BodySender;
use super::retries::{pause, retry_delay};
use super::shares::{HeldShare, SharedLimit};
use super::status::{CallError, RpcResult};
use super::stream_body::{RequestFailure, StreamBody};
use super::worker_pool::WorkerPool;
use crate::limits::{EdgeLimits, grpc_timeout};
use pumice_engine::model::ErrorCode;

/// Time before the caller's deadline at which the error is sent. It then arrives before the transport cancels the call.
const DEADLINE_MARGIN: Duration = Duration::from_millis(1);
/// Number of streams that a connection may hold of the kept part: a source has one, and watches the health beside it.
const FEW_STREAMS: usize = 4;
/// Bytes that a connection holds, about: a few thousand if it is idle, some ten thousand if it was used.
const CONNECTION_BYTES: usize = 32 << 10;
/// Path of a health check that is answered once.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// Paths of server reflection, whose service ends its response with OK whatever it cannot read. The messages of both
/// versions are equal.
const REFLECTION: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Begin of the paths of this service's calls.
const OWN_PATHS: &str = "/pumice.";
/// Paths of this service's calls with more than one request or response.
const STREAMS: [&str; 1] = ["/pumice.v1.StateService/Sync"];

/// Layer that throttles calls.
#[derive(Clone, Debug)]
pub struct ThrottleLayer(Arc<CallThrottle>);

#[derive(Debug)]
struct CallThrottle {
    calls: Arc<SharedLimit>,
    streams: Arc<SharedLimit>,
    memory: Arc<MemoryBudget>,
    requests: Arc<BodyReceiver>,
    responses: BodySender,
    large: LargeMessageGate,
}

/// Call that has its place.
struct AdmittedCall {
    kind: CallKind,
    body: Body,
    place: Option<HeldShare>,
    /// Failure of the requests with which the response has to end.
    request_failure: Option<RequestFailure>,
}

/// Kind of a call, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    /// Health check, which always passes: probes ask when the server is busiest.
    Probe,
    /// One request and one response.
    Unary,
    /// Requests or responses without end.
    Stream,
}

impl CallKind {
    fn of(path: &str) -> Self {
        if path == HEALTH_CHECK {
            Self::Probe
        } else if path.starts_with(OWN_PATHS) && !STREAMS.contains(&path) {
            Self::Unary
        } else {
            Self::Stream
        }
    }
}

impl ThrottleLayer {
    /// Layer with these limits and this budget. Large messages are decoded on the workers.
    pub fn new(limits: &EdgeLimits, memory: &Arc<MemoryBudget>, workers: &Arc<WorkerPool>) -> Self {
        let (calls, streams) = (("calls", limits.calls), ("streams", limits.streams));
        let calls_share = ("connection_calls", limits.connection_calls);
        let streams_share = ("connection_streams", limits.connection_streams);
        let messages = [
            "too many calls of this connection are under way, or their responses are not taken",
            "too many calls are under way, or their responses are not taken",
        ];
        Self(Arc::new(CallThrottle {
            calls: SharedLimit::new(calls, calls_share, messages, 1, |held| &held.calls),
            streams: SharedLimit::new(streams, streams_share, messages, FEW_STREAMS, |held| &held.streams),
            memory: Arc::clone(memory),
            requests: BodyReceiver::new(memory, limits.request_bytes, limits.request_body),
            responses: BodySender::new(memory, limits.workers),
            large: LargeMessageGate::new(Arc::clone(workers)),
        }))
    }

    /// Bytes of messages and connections by which the present ones are below the most since the last call.
    pub fn freed_bytes(&self) -> usize {
        let memory = &self.0.memory;
        memory.connections.fallen() * CONNECTION_BYTES + memory.fallen()
    }
}

impl CallThrottle {
    /// Place of a call, until all of its response is taken.
    async fn place(&self, limit: &Arc<SharedLimit>, connection: &Arc<CallerConnection>) -> RpcResult<HeldShare> {
        let mut place = HeldShare::none(limit, connection);
        if place.grow(1).is_ok() {
            return Ok(place);
        }
        Box::pin(self.close_for_place(place, limit, connection)).await
    }

    /// Place of a call that a connection leaves which is closed for it, if there is one to close.
    async fn close_for_place(
        &self,
        mut place: HeldShare,
        limit: &SharedLimit,
        connection: &CallerConnection,
    ) -> RpcResult<HeldShare> {
        // Streams last for as long as their callers like: those that say nothing give way to a caller's first ones.
        let few = connection.held.streams.load(Ordering::Relaxed) < FEW_STREAMS;
        let closes_silent = few && std::ptr::eq(limit, self.streams.as_ref());
        let mut has_closed_silent = false;
        let close = || {
            let (number, connections) = (connection.number, &self.memory.connections);
            // One silent connection is enough, however long its end takes.
            if !has_closed_silent && !connections.close_most_stalled(number, limit.name) {
                has_closed_silent = closes_silent && connections.close_most_silent(number, limit.name);
                return has_closed_silent;
            }
            true
        };
        place.grow_shedding(1, close).await?;
        Ok(place)
    }

    /// Receives the request, calls the service, and prepares the response for sending.
    async fn respond<S>(
        &self,
        mut service: S,
        request: Request<Body>,
        scope: &Arc<CallScope>,
        call: ConnectionCall,
    ) -> Result<RpcResult<Response<Body>>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>, Future: Send + 'static, Error: Send + 'static>,
    {
        let connection = &scope.connection;
        let (parts, body) = request.into_parts();
        let admitted = match self.admit(parts.uri.path(), body, scope).await {
            Ok(admitted) => admitted,
            Err(failure) => {
                Box::pin(pause(connection, failure.retry_delay(), scope.deadline)).await;
                return Ok(Err(failure));
            }
        };
        let request = Request::from_parts(parts, admitted.body);
        let response = self.large.call(&mut service, request).await?;
        if admitted.kind != CallKind::Stream {
            // The request is decided.
            drop(scope.received.with(Option::take));
        }
        let mut place = admitted.place;
        if let Some(status) = Status::from_header_map(response.headers()) {
            let retry = retry_delay(&status);
            if retry.is_some() {
                place = None;
            }
            Box::pin(pause(connection, retry, scope.deadline)).await;
            if let Some(failure) = failure_of_transport(&status, self.requests.request_bytes) {
                return Ok(Err(failure));
            }
        }
        let (parts, body) = response.into_parts();
        let body = self
            .responses
            .send(body, connection, (call, place), scope.room.with(Option::take))
            .await;
        Ok(body.map(|body| {
            let body = body.ending_with(admitted.request_failure);
            Response::from_parts(parts, Body::new(body))
        }))
    }

    /// Receives what a call needs before it begins, and takes its place.
    async fn admit(&self, path: &str, body: Body, scope: &Arc<CallScope>) -> RpcResult<AdmittedCall> {
        let (kind, connection) = (CallKind::of(path), &scope.connection);
        let mut request_failure = None;
        let (body, place) = match kind {
            CallKind::Stream => {
                let place = self.place(&self.streams, connection).await?;
                connection.touch_stream();
                let mut body = StreamBody::new(body, &self.requests, scope);
                if REFLECTION.contains(&path) {
                    body = body.checked(|message| ServerReflectionRequest::decode(message).is_ok());
                    request_failure = Some(body.failure());
                }
                if scope.inflates {
                    let share = self.memory.share(connection);
                    scope.received.with(|received| *received = Some(share));
                }
                (Body::new(body), Some(place))
            }
            CallKind::Probe | CallKind::Unary => {
                let message = self.requests.receive(body, connection, !scope.inflates).await?;
                let place = match kind {
                    CallKind::Probe => None,
                    CallKind::Unary | CallKind::Stream => Some(self.place(&self.calls, connection).await?),
                };
                if scope.inflates {
                    scope.expect_message(message.gzip_length());
                }
                if scope.inflates || message.share.amount() > 0 {
                    scope.received.with(|received| *received = Some(message.share));
                }
                (Body::new(Full::new(message.bytes)), place)
            }
        };
        Ok(AdmittedCall {
            kind,
            body,
            place,
            request_failure,
        })
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = ThrottledService<S>;

    fn layer(&self, inner: S) -> ThrottledService<S> {
        ThrottledService {
            inner,
            throttle: Arc::clone(&self.0),
        }
    }
}

/// Service whose calls are throttled.
#[derive(Clone, Debug)]
pub struct ThrottledService<S> {
    inner: S,
    throttle: Arc<CallThrottle>,
}

type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for ThrottledService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = caller(&request);
        let call = connection.begin_call();
        let patience = grpc_timeout(request.headers()).map(|timeout| timeout.saturating_sub(DEADLINE_MARGIN));
        let inflates = may_be_compressed(request.headers());
        // The ready service is used, and its copy takes its place.
        let copy = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, copy);
        let throttle = Arc::clone(&self.throttle);
        Box::pin(async move {
            let inflates = match inflates {
                Ok(inflates) => inflates,
                Err(failure) => return Ok(refused(failure)),
            };
            let deadline = patience.map(|patience| Instant::now() + patience);
            let scope = CallScope::new(&connection, &throttle.memory, inflates, deadline);
            // Where it is from here on: a future is copied each time that it moves.
            let response = std::pin::pin!(throttle.respond(service, request, &scope, call));
            let response = Arc::clone(&scope).run(response);
            let result = match deadline {
                None => response.await?,
                Some(deadline) => match tokio::time::timeout_at(deadline, response).await {
                    Ok(result) => result?,
                    Err(_) => Err(deadline_passed()),
                },
            };
            Ok(result.unwrap_or_else(refused))
        })
    }
}

/// Response of a call that is rejected.
fn refused(failure: CallError) -> Response<Body> {
    let mut response = Status::from(failure).into_http::<Body>();
    let accepted = HeaderValue::from_static(ACCEPTED_ENCODINGS);
    response.headers_mut().insert("grpc-accept-encoding", accepted);
    response
}

/// Connection of a request.
fn caller(request: &Request<Body>) -> Arc<CallerConnection> {
    let known = request.extensions().get::<Option<Arc<CallerConnection>>>();
    known.and_then(Option::clone).unwrap_or_else(CallerConnection::unknown)
}

fn deadline_passed() -> CallError {
    let message = "the caller's deadline has passed; the work was cancelled";
    CallError::new(ErrorCode::DeadlineExceeded, message)
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic::transport::server::TcpConnectInfo;
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::server::{ConnectionTable, pb};
    use crate::telemetry::Metrics;

    fn layer(limits: &EdgeLimits) -> ThrottleLayer {
        let connections = ConnectionTable::new(1, Arc::new(Metrics::new()));
        let memory = MemoryBudget::new(limits, &connections);
        ThrottleLayer::new(limits, &memory, &Arc::new(WorkerPool::new(limits)))
    }

    #[tokio::test]
    async fn a_call_ends_at_its_deadline_and_frees_its_place() {
        let limits = EdgeLimits {
            calls: 1,
            ..EdgeLimits::default()
        };
        let never = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Status>>());
        let service = layer(&limits).layer(never);
        for _ in 0..2 {
            let request = Request::get("/pumice.v1.DecisionService/Score").header("grpc-timeout", "5m");
            let body = Body::new(axum::body::Body::from(vec![0; 5]));
            let result = service.clone().oneshot(request.body(body).unwrap()).await.unwrap();
            let status = Status::from_header_map(result.headers()).unwrap();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_does_not_wait_is_rejected_later() {
        let full = service_fn(|_: Request<Body>| async {
            let failure = CallError::limit_as(ErrorCode::Overloaded, "worker_queue", 1, "full")
                .retry_after(Duration::from_secs(10));
            Ok::<_, Status>(Status::from(failure).into_http::<Body>())
        });
        let service = layer(&EdgeLimits::default()).layer(full);
        let nowhere = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        let times = async |connection: Arc<CallerConnection>, timeout: &str| {
            let mut times = Vec::new();
            for _ in 0..11 {
                let begun = Instant::now();
                let request = Request::get("/pumice.v1.DecisionService/Score").header("grpc-timeout", timeout);
                let request = request.extension(Some(Arc::clone(&connection)));
                let body = Body::new(axum::body::Body::from(vec![0; 5]));
                let result = service.clone().oneshot(request.body(body).unwrap()).await.unwrap();
                let status = Status::from_header_map(result.headers()).unwrap();
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                times.push(begun.elapsed().as_millis());
            }
            times
        };
        let held = times(CallerConnection::new(1, nowhere.clone()), "5S").await;
        assert!(held[9..].iter().all(|time| *time >= 250), "{held:?}");
        assert!(held[..9].iter().sum::<u128>() < held[9..].iter().sum(), "{held:?}");
        // A caller with little time is rejected within it.
        times(CallerConnection::new(2, nowhere), "200m").await;
    }

    #[test]
    fn every_stream_of_the_protocol_is_throttled_as_one() {
        for service in pb::DESCRIPTORS.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let streams = method.is_client_streaming() || method.is_server_streaming();
                assert_eq!(CallKind::of(&path) == CallKind::Stream, streams, "{path}");
            }
        }
    }
}
