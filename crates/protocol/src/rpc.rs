//! Calls of methods as calls of bytes: what tonic does for a call is compiled once for a transport, and not for each message.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{Buf as _, BufMut as _, Bytes};
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::transport::{Channel, Endpoint};
use tonic::{GrpcMethod, IntoRequest, IntoStreamingRequest, Request, Response, Status};
use tonic_prost::ProstCodec;

/// Service that carries calls: a connection of tonic, or what stands for one.
pub trait CallService:
    GrpcService<
        tonic::body::Body,
        Error: Into<StdError>,
        ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    >
{
}

impl<T> CallService for T
where
    T: GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
}

/// Method and the path that a call of it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RpcMethod {
    service: &'static str,
    method: &'static str,
    path: &'static str,
}

impl RpcMethod {
    pub(crate) const fn new(service: &'static str, method: &'static str, path: &'static str) -> Self {
        Self { service, method, path }
    }

    /// Names the method in the request, for interceptors.
    fn name<Q>(self, request: &mut Request<Q>) -> PathAndQuery {
        let Self { service, method, path } = self;
        request.extensions_mut().insert(GrpcMethod::new(service, method));
        PathAndQuery::from_static(path)
    }
}

/// Client of a service at the other end of a transport.
#[derive(Debug, Clone)]
pub struct ServiceClient<T, S> {
    grpc: Grpc<T>,
    service: PhantomData<S>,
}

impl<S> ServiceClient<Channel, S> {
    /// Connects to a server.
    ///
    /// # Errors
    /// The address cannot be used, or the server does not respond.
    pub async fn connect<D>(address: D) -> Result<Self, tonic::transport::Error>
    where
        D: TryInto<Endpoint, Error: Into<StdError>>,
    {
        Ok(Self::new(Endpoint::new(address)?.connect().await?))
    }
}

impl<T: CallService, S> ServiceClient<T, S> {
    /// Client over this transport.
    pub fn new(transport: T) -> Self {
        Self::over(Grpc::new(transport))
    }

    fn over(grpc: Grpc<T>) -> Self {
        let service = PhantomData;
        Self { grpc, service }
    }

    /// Compresses requests with this encoding, which the server has to know.
    #[must_use]
    pub fn send_compressed(self, encoding: CompressionEncoding) -> Self {
        Self::over(self.grpc.send_compressed(encoding))
    }

    /// Takes responses that are compressed with this encoding.
    #[must_use]
    pub fn accept_compressed(self, encoding: CompressionEncoding) -> Self {
        Self::over(self.grpc.accept_compressed(encoding))
    }

    /// Takes responses of at most this many bytes; 4 MiB unless it is set.
    #[must_use]
    pub fn max_decoding_message_size(self, bytes: usize) -> Self {
        Self::over(self.grpc.max_decoding_message_size(bytes))
    }

    /// Sends requests of at most this many bytes; of any size unless it is set.
    #[must_use]
    pub fn max_encoding_message_size(self, bytes: usize) -> Self {
        Self::over(self.grpc.max_encoding_message_size(bytes))
    }

    /// Calls a method with one request and one response.
    pub(crate) async fn unary<Q: Message, R: Message + Default>(
        &mut self,
        method: RpcMethod,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<R>, Status> {
        let request = request.into_request().map(|message| message.encode_to_vec().into());
        let (metadata, bytes, extensions) = self.bytes(method, request).await?.into_parts();
        let message = R::decode(bytes).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::from_parts(metadata, message, extensions))
    }

    /// Calls a method with an encoded request.
    pub(crate) async fn bytes(
        &mut self,
        method: RpcMethod,
        mut request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let path = method.name(&mut request);
        self.grpc.unary(request, path, BytesCodec).await
    }

    /// Calls a method with a stream of requests and one of responses.
    pub(crate) async fn streaming<Q, R>(
        &mut self,
        method: RpcMethod,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<R>>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        self.ready().await?;
        let mut requests = requests.into_streaming_request();
        let path = method.name(&mut requests);
        self.grpc.streaming(requests, path, ProstCodec::default()).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::unknown(format!("the service is not ready: {}", error.into())))
    }
}

/// Codec of tonic for messages that are encoded.
#[derive(Debug, Clone, Copy, Default)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
