//! Methods of gRPC services as calls of bytes: what tonic does for a call is compiled once, and not for each of its messages.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http;
use futures_util::future::Either;
use futures_util::{Stream, StreamExt as _};
use prost::bytes::Bytes;
use prost::{Message, Name};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tower::{Layer, Service, service_fn};

use super::ServerContext;
use super::codec::{CallCodec, EncodedResponse, MessageFormat};
use super::pb;
use super::status::RpcResult;

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type UnaryHandler = Box<dyn FnMut(Request<Bytes>) -> BoxedFuture<Result<Response<EncodedResponse>, Status>> + Send>;

/// Response of a call over HTTP.
pub(super) type CallFuture = BoxedFuture<Result<http::Response<Body>, Infallible>>;

/// Layer with the services of `pumice.v1`. Calls of other services go on to the service behind it.
#[derive(Clone, Debug)]
pub struct ServicesLayer(pub(super) Arc<ServerContext>);

impl<S> Layer<S> for ServicesLayer {
    type Service = Services<S>;

    fn layer(&self, others: S) -> Services<S> {
        Services {
            server: Arc::clone(&self.0),
            others,
        }
    }
}

/// The services of `pumice.v1`, beside others.
#[derive(Clone, Debug)]
pub struct Services<S> {
    server: Arc<ServerContext>,
    others: S,
}

impl<S> Service<http::Request<Body>> for Services<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Either<CallFuture, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.others.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = request
            .uri()
            .path()
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'));
        let serve = match service {
            Some((pb::DECISION_SERVICE, _)) => pb::decision_service,
            Some((pb::STATE_SERVICE, _)) => pb::state_service,
            Some((pb::POLICY_SERVICE, _)) => pb::policy_service,
            Some(_) | None => return Either::Right(self.others.call(request)),
        };
        Either::Left(serve(Arc::clone(&self.server), ServiceCall(request)))
    }
}

/// Call of a method, as it came.
pub(super) struct ServiceCall(http::Request<Body>);

impl fmt::Debug for ServiceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceCall").field(self.0.uri()).finish()
    }
}

impl ServiceCall {
    /// Name of the method, behind that of its service. Another path is another method, as for the roles of callers.
    pub(super) fn method(&self) -> &str {
        let path = self.0.uri().path().strip_prefix('/');
        path.and_then(|path| path.split_once('/'))
            .map_or("", |(_, method)| method)
    }

    /// Serves a method with one request and one response.
    pub(super) fn unary<Q, R, F>(
        self,
        server: Arc<ServerContext>,
        method: impl Fn(Arc<ServerContext>, Request<Q>) -> F + Send + 'static,
    ) -> CallFuture
    where
        Q: Message + Name + Default + 'static,
        R: Message + 'static,
        F: Future<Output = RpcResult<R>> + Send + 'static,
    {
        let (grpc, format) = self.grpc(&server);
        let handler = move |request: Request<Bytes>| -> BoxedFuture<_> {
            let (metadata, extensions, bytes) = request.into_parts();
            match format.read(bytes) {
                Ok(read) => {
                    let called = method(Arc::clone(&server), Request::from_parts(metadata, extensions, read));
                    Box::pin(async move { Ok(Response::new(format.write(called.await?)?)) })
                }
                Err(failure) => Box::pin(std::future::ready(Err(failure.into()))),
            }
        };
        self.respond(grpc, Box::new(handler))
    }

    fn respond(self, mut grpc: Grpc<CallCodec>, handler: UnaryHandler) -> CallFuture {
        Box::pin(async move { Ok(grpc.unary(service_fn(handler), self.0).await) })
    }

    /// Serves a method with a stream of requests and one of responses.
    pub(super) fn streaming<R, S, F>(
        self,
        server: Arc<ServerContext>,
        method: impl Fn(Arc<ServerContext>, Request<Streaming<Bytes>>) -> F + Send + 'static,
    ) -> CallFuture
    where
        R: Message + 'static,
        S: Stream<Item = Result<R, Status>> + Send + 'static,
        F: Future<Output = RpcResult<S>> + Send + 'static,
    {
        let (mut grpc, format) = self.grpc(&server);
        let handler = service_fn(move |request| {
            let called = method(Arc::clone(&server), request);
            async move {
                let encoded = move |response: Result<R, Status>| Ok(format.write(response?)?);
                Ok(Response::new(called.await?.map(encoded)))
            }
        });
        Box::pin(async move { Ok(grpc.streaming(handler, self.0).await) })
    }

    /// Caller of the method within the limits on messages, and their format.
    fn grpc(&self, server: &ServerContext) -> (Grpc<CallCodec>, MessageFormat) {
        let limits = &server.read_options.limits;
        let grpc = Grpc::new(CallCodec)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(limits.request_bytes)
            .max_encoding_message_size(limits.response_bytes);
        (grpc, MessageFormat::of(self.0.extensions(), limits))
    }

    /// Rejects a call of a method that the service does not have.
    pub(super) fn unknown(self) -> CallFuture {
        drop(self.0);
        let status = Status::unimplemented(String::new());
        Box::pin(std::future::ready(Ok(status.into_http())))
    }
}
