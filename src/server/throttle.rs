//! Throttling of calls: bounds what is received, worked on and sent for all callers and for each connection, and enforces
//! each caller's deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response};
use prost::Message as _;
use tokio::time::{Instant, sleep};
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tower::{Layer, Service};

use super::connection::{CallerConnection, ConnectionCall};
use super::connection_table::ConnectionTable;
use super::rejection_pause::{RejectionPauses, retry_delay};
use super::request_body::{BodyReceiver, malformed};
use super::request_encoding::{InflatedStream, RequestEncoding, inflate_request};
use super::response_body::BodySender;
use super::response_room::{ReservedRoom, ResponseSender};
use super::shares::{HeldShare, ShareError, SharedLimit};
use super::status::CallError;
use super::stream_body::{RequestFailure, StreamBody};
use super::worker_pool::WorkerPool;
use crate::limits::{EdgeLimits, grpc_timeout};

/// Time before the caller's deadline at which the error is sent, so that it arrives before the transport cancels the
/// call.
const DEADLINE_MARGIN: Duration = Duration::from_millis(1);
/// Number of stalled connections that are closed for the sake of one call.
const CLOSE_ATTEMPTS: usize = 20;
/// Delay after which the places of a closed connection are free.
const CLOSE_DELAY: Duration = Duration::from_millis(10);
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
    requests: Arc<BodyReceiver>,
    responses: Arc<BodySender>,
    connections: Arc<ConnectionTable>,
    workers: Arc<WorkerPool>,
    pauses: RejectionPauses,
}

/// Call that has its place.
struct AdmittedCall {
    request: Request<Body>,
    place: Option<HeldShare>,
    /// Bytes of the request, which count until it is decided.
    received: Option<Arc<HeldShare>>,
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
    /// Layer with these limits, over these connections. The workers inflate large compressed requests.
    pub fn new(limits: &EdgeLimits, connections: &Arc<ConnectionTable>, workers: &Arc<WorkerPool>) -> Self {
        let (calls, streams) = (("calls", limits.calls), ("streams", limits.streams));
        let calls_share = ("connection_calls", limits.connection_calls);
        let streams_share = ("connection_streams", limits.connection_streams);
        Self(Arc::new(CallThrottle {
            calls: SharedLimit::new(calls, calls_share, 1, |held| &held.calls),
            streams: SharedLimit::new(streams, streams_share, FEW_STREAMS, |held| &held.streams),
            requests: BodyReceiver::new(limits),
            responses: BodySender::new(limits, Arc::clone(connections)),
            connections: Arc::clone(connections),
            workers: Arc::clone(workers),
            pauses: RejectionPauses::default(),
        }))
    }

    /// Bytes of requests, responses and connections by which the present ones are below the most since the last call.
    pub fn freed_bytes(&self) -> usize {
        let connections = self.0.connections.fallen() * CONNECTION_BYTES;
        connections + self.0.requests.bytes.fallen() + self.0.responses.bytes.fallen()
    }
}

impl CallThrottle {
    /// Place of a call, until all of its response is taken.
    async fn place(
        &self,
        limit: &Arc<SharedLimit>,
        connection: &Arc<CallerConnection>,
    ) -> Result<HeldShare, CallError> {
        let mut place = HeldShare::none(limit, connection);
        // Streams last for as long as their callers like: those that say nothing give way to a caller's first ones.
        let few = connection.held.streams.load(Ordering::Relaxed) < FEW_STREAMS;
        let mut closes_silent = few && limit.name == "streams";
        for _ in 0..CLOSE_ATTEMPTS {
            match place.grow(1) {
                Ok(()) => return Ok(place),
                Err(ShareError::Greedy) => {
                    let message = "too many calls of this connection are under way, or their responses are not taken";
                    return Err(place.rejection(ShareError::Greedy, message));
                }
                Err(ShareError::Full) => {}
            }
            if !self.connections.close_most_stalled(connection.number(), limit.name) {
                if !std::mem::take(&mut closes_silent)
                    || !self.connections.close_most_silent(connection.number(), limit.name)
                {
                    break;
                }
                // One connection is enough, however long its end takes.
                if self.wait_for_place(&mut place).await {
                    return Ok(place);
                }
            }
            sleep(CLOSE_DELAY).await;
        }
        let message = "too many calls are under way, or their responses are not taken";
        Err(place.rejection(ShareError::Full, message))
    }

    /// Waits for a place that a closed connection leaves. Returns false if none comes.
    async fn wait_for_place(&self, place: &mut HeldShare) -> bool {
        for _ in 0..CLOSE_ATTEMPTS {
            sleep(CLOSE_DELAY).await;
            if place.grow(1).is_ok() {
                return true;
            }
        }
        false
    }

    /// Receives the request, calls the service, and prepares the response for sending.
    async fn respond<S>(
        &self,
        mut service: S,
        request: Request<Body>,
        connection: &Arc<CallerConnection>,
        (call, deadline): (ConnectionCall, Option<Instant>),
    ) -> Result<Result<Response<Body>, CallError>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>>,
    {
        let kind = CallKind::of(request.uri().path());
        let is_own = request.uri().path().starts_with(OWN_PATHS);
        let AdmittedCall {
            mut request,
            place,
            received,
            request_failure,
        } = match self.admit(kind, request, connection).await {
            Ok(admitted) => admitted,
            Err(failure) => {
                self.pauses.pause(connection, failure.retry_delay(), deadline).await;
                return Ok(Err(failure));
            }
        };
        request.extensions_mut().insert(ResponseSender {
            sender: Arc::clone(&self.responses),
            connection: Arc::clone(connection),
        });
        let mut response = service.call(request).await?;
        drop(received);
        let reserved = ReservedRoom::take(response.extensions_mut());
        let retry = Status::from_header_map(response.headers()).and_then(|status| retry_delay(&status));
        let place = place.filter(|_| retry.is_none());
        self.pauses.pause(connection, retry, deadline).await;
        // The messages of this service are read by its own codec, which knows whose fault an unreadable one is.
        if !is_own && has_code(&response, Code::Internal) {
            return Ok(Err(malformed("the request cannot be read")));
        }
        let (parts, body) = response.into_parts();
        let body = self.responses.send(body, connection, (call, place), reserved).await;
        Ok(body.map(|body| Response::from_parts(parts, Body::new(body.ending_with(request_failure)))))
    }

    /// Receives what a call needs before it begins, and takes its place.
    async fn admit(
        &self,
        kind: CallKind,
        request: Request<Body>,
        connection: &Arc<CallerConnection>,
    ) -> Result<AdmittedCall, CallError> {
        let (mut parts, body) = request.into_parts();
        let encoding = RequestEncoding::take(&mut parts.headers)?;
        let plain = encoding == RequestEncoding::Plain;
        let (mut received, mut request_failure) = (None, None);
        let (body, place) = match kind {
            CallKind::Stream => {
                let place = self.place(&self.streams, connection).await?;
                connection.touch_stream();
                let mut body = StreamBody::new(body, &self.requests, connection, plain);
                if REFLECTION.contains(&parts.uri.path()) {
                    body = body.checked(|message| ServerReflectionRequest::decode(message).is_ok());
                    request_failure = Some(body.failure());
                }
                let body = if plain {
                    Body::new(body)
                } else {
                    Body::new(InflatedStream::new(body, &self.requests, connection))
                };
                (body, Some(place))
            }
            CallKind::Probe | CallKind::Unary => {
                let mut body = self.requests.receive(body, connection, plain).await?;
                let place = match kind {
                    CallKind::Probe => None,
                    CallKind::Unary | CallKind::Stream => Some(self.place(&self.calls, connection).await?),
                };
                if !plain {
                    body = inflate_request(body, connection, &self.requests, &self.workers.messages).await?;
                }
                if kind == CallKind::Unary {
                    received = Some(body.share());
                }
                (Body::new(body), place)
            }
        };
        Ok(AdmittedCall {
            request: Request::from_parts(parts, body),
            place,
            received,
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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let connection = caller(&mut request);
        let call = connection.begin_call();
        let patience = grpc_timeout(request.headers()).map(|timeout| timeout.saturating_sub(DEADLINE_MARGIN));
        // The ready service is used, and its copy takes its place.
        let copy = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, copy);
        let throttle = Arc::clone(&self.throttle);
        Box::pin(async move {
            let deadline = patience.map(|patience| Instant::now() + patience);
            let response = throttle.respond(service, request, &connection, (call, deadline));
            let response = CallerConnection::scope(Arc::clone(&connection), response);
            let result = match patience {
                None => response.await?,
                Some(patience) => match tokio::time::timeout(patience, response).await {
                    Ok(result) => result?,
                    Err(_) => Err(deadline_passed()),
                },
            };
            Ok(result.unwrap_or_else(|failure| {
                let mut response = Status::from(failure).into_http::<Body>();
                let accepted = HeaderValue::from_static(RequestEncoding::ACCEPTED);
                response.headers_mut().insert("grpc-accept-encoding", accepted);
                response
            }))
        })
    }
}

/// Connection of a request, whose addresses the services look for where the transport puts them.
fn caller(request: &mut Request<Body>) -> Arc<CallerConnection> {
    let known = request
        .extensions()
        .get::<Option<Arc<CallerConnection>>>()
        .and_then(Option::clone);
    let connection = known.unwrap_or_else(|| {
        let nowhere = TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        CallerConnection::new(u64::MAX, nowhere)
    });
    request.extensions_mut().insert(connection.peer().clone());
    connection
}

fn has_code(response: &Response<Body>, code: Code) -> bool {
    Status::from_header_map(response.headers()).is_some_and(|status| status.code() == code)
}

fn deadline_passed() -> CallError {
    let message = "the caller's deadline has passed; the work was cancelled";
    CallError::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message)
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::server::pb;
    use crate::telemetry::Metrics;

    #[tokio::test]
    async fn a_call_ends_at_its_deadline_and_frees_its_place() {
        let limits = EdgeLimits {
            calls: 1,
            ..EdgeLimits::default()
        };
        let never = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Status>>());
        let connections = ConnectionTable::new(1, Arc::new(Metrics::new()));
        let workers = Arc::new(WorkerPool::new(&limits));
        let service = ThrottleLayer::new(&limits, &connections, &workers).layer(never);
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
        let (limits, metrics) = (EdgeLimits::default(), Arc::new(Metrics::new()));
        let full = service_fn(|_: Request<Body>| async {
            let failure =
                CallError::limit("OVERLOADED", "worker_queue", 1, "full").retry_after(Duration::from_secs(10));
            Ok::<_, Status>(Status::from(failure).into_http::<Body>())
        });
        let connections = ConnectionTable::new(1, metrics);
        let workers = Arc::new(WorkerPool::new(&limits));
        let service = ThrottleLayer::new(&limits, &connections, &workers).layer(full);
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
        let pool = prost_reflect::DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let streams = method.is_client_streaming() || method.is_server_streaming();
                assert_eq!(CallKind::of(&path) == CallKind::Stream, streams, "{path}");
            }
        }
    }
}
