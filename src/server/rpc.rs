//! Methods of gRPC services as calls of bytes: what tonic does for a call is compiled once, and not for each of its messages.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http;
use futures_util::{Stream, StreamExt as _};
use prost::bytes::Bytes;
use prost::{Message, Name};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use super::codec::{self, CallCodec, EncodedResponse};
use super::status::CallError;

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Responses = Pin<Box<dyn Stream<Item = Result<EncodedResponse, Status>> + Send>>;

/// Response of a call over HTTP.
pub type CallFuture = BoxedFuture<Result<http::Response<Body>, Infallible>>;

/// Most bytes of a message in each direction.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    /// Most bytes of a request.
    pub request_bytes: usize,
    /// Most bytes of a response.
    pub response_bytes: usize,
}

/// Methods of a service of gRPC, found by their paths.
pub trait ServiceMethods: Send + Sync + 'static {
    /// Full name of the service.
    const NAME: &'static str;

    /// Serves a call of the method that its path names.
    fn serve(self: Arc<Self>, call: ServiceCall) -> CallFuture;
}

/// Service of gRPC with these methods.
#[derive(Debug)]
pub struct RpcService<M> {
    methods: Arc<M>,
    limits: MessageLimits,
}

impl<M> RpcService<M> {
    /// Service with these limits.
    pub fn new(methods: M, limits: MessageLimits) -> Self {
        Self {
            methods: Arc::new(methods),
            limits,
        }
    }
}

impl<M> Clone for RpcService<M> {
    fn clone(&self) -> Self {
        Self {
            methods: Arc::clone(&self.methods),
            limits: self.limits,
        }
    }
}

impl<M: ServiceMethods> NamedService for RpcService<M> {
    const NAME: &'static str = M::NAME;
}

impl<M: ServiceMethods> tower::Service<http::Request<Body>> for RpcService<M> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> CallFuture {
        let limits = self.limits;
        Arc::clone(&self.methods).serve(ServiceCall { request, limits })
    }
}

/// Call of a method, as it came.
pub struct ServiceCall {
    request: http::Request<Body>,
    limits: MessageLimits,
}

impl fmt::Debug for ServiceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceCall").field(self.request.uri()).finish()
    }
}

impl ServiceCall {
    /// Path of the method. Another path is another method, as for the roles of callers.
    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    fn grpc(&self) -> Grpc<CallCodec> {
        let grpc = Grpc::new(CallCodec::default()).accept_compressed(CompressionEncoding::Gzip);
        grpc.max_decoding_message_size(self.limits.request_bytes)
            .max_encoding_message_size(self.limits.response_bytes)
    }

    /// Serves a method with one request and one response.
    pub fn unary<Q, R, F>(self, handler: impl FnOnce(Request<Q>) -> F + Send + 'static) -> CallFuture
    where
        Q: Message + Name + Default + 'static,
        R: Message + 'static,
        F: Future<Output = Result<R, CallError>> + Send + 'static,
    {
        self.handle(Box::new(move |request| {
            Box::pin(async move {
                let (metadata, extensions, bytes) = request.into_parts();
                let request = Request::from_parts(metadata, extensions, codec::read(bytes)?);
                let response = handler(request).await?;
                Ok(Response::new(Box::new(response) as EncodedResponse))
            })
        }))
    }

    fn handle(self, handler: UnaryHandler) -> CallFuture {
        Box::pin(async move {
            let mut grpc = self.grpc();
            Ok(grpc.unary(UnaryMethod(Some(handler)), self.request).await)
        })
    }

    /// Serves a method with a stream of requests and one of responses.
    pub fn streaming<Q, R, S, F>(
        self,
        handler: impl FnOnce(Request<RequestStream<Q>>) -> F + Send + 'static,
    ) -> CallFuture
    where
        Q: Send + 'static,
        R: Message + 'static,
        S: Stream<Item = Result<R, Status>> + Send + 'static,
        F: Future<Output = Result<S, CallError>> + Send + 'static,
    {
        let handler: StreamHandler = Box::new(move |request| {
            Box::pin(async move {
                let responses = handler(request.map(|bytes| RequestStream(bytes, PhantomData))).await?;
                let encoded =
                    |response: Result<R, Status>| response.map(|response| Box::new(response) as EncodedResponse);
                Ok(Response::new(Box::pin(responses.map(encoded)) as Responses))
            })
        });
        Box::pin(async move {
            let mut grpc = self.grpc();
            Ok(grpc.streaming(StreamMethod(Some(handler)), self.request).await)
        })
    }

    /// Rejects a call of a method that the service does not have.
    pub fn unknown(self) -> CallFuture {
        let status = Status::unimplemented(String::new());
        Box::pin(std::future::ready(Ok(status.into_http())))
    }
}

type UnaryHandler = Box<dyn FnOnce(Request<Bytes>) -> BoxedFuture<Result<Response<EncodedResponse>, Status>> + Send>;
type StreamHandler =
    Box<dyn FnOnce(Request<Streaming<Bytes>>) -> BoxedFuture<Result<Response<Responses>, Status>> + Send>;

struct UnaryMethod(Option<UnaryHandler>);

impl UnaryService<Bytes> for UnaryMethod {
    type Response = EncodedResponse;
    type Future = BoxedFuture<Result<Response<EncodedResponse>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        match self.0.take() {
            Some(handler) => handler(request),
            None => Box::pin(std::future::ready(Err(served_twice()))),
        }
    }
}

struct StreamMethod(Option<StreamHandler>);

impl StreamingService<Bytes> for StreamMethod {
    type Response = EncodedResponse;
    type ResponseStream = Responses;
    type Future = BoxedFuture<Result<Response<Responses>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        match self.0.take() {
            Some(handler) => handler(request),
            None => Box::pin(std::future::ready(Err(served_twice()))),
        }
    }
}

/// tonic calls a method once for each call.
fn served_twice() -> Status {
    Status::internal("a call was served twice")
}

/// Requests that a stream shows, read one by one.
#[derive(Debug)]
pub struct RequestStream<Q>(Streaming<Bytes>, PhantomData<fn() -> Q>);

impl<Q: Message + Name + Default> Stream for RequestStream<Q> {
    type Item = Result<Q, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.poll_next_unpin(context);
        next.map(|bytes| bytes.map(|bytes| codec::read(bytes?)))
    }
}
