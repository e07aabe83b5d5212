//! A connection to a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::transport::Endpoint;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::client_tls::ConnectOptions;
use crate::v1::{DecisionServiceClient, PolicyServiceClient, StateServiceClient};

/// Address of a server that was started without options.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7461";
/// Address of a server's probes and metrics, unless another is configured.
pub const DEFAULT_METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7462);

/// Flow-control window of a call in one direction, in bytes. It is large enough for a part of a full sync, or for all
/// scores of 10,000 nodes for 50 tasks, without a pause. The default of HTTP/2 is 64 KiB.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Flow-control window of a connection in bytes. It limits the memory for a slow reader.
pub const CONNECTION_WINDOW: u32 = 8 << 20;

/// Maximum bytes of a reply: listings and scores of whole clusters.
pub const REPLY_BYTES: usize = 256 << 20;

/// Transport of calls: a connection to a server, or the services in this process.
pub type CallTransport = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// Error of the attempt to connect to a server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address names no server that this client can speak to.
    #[error("{0}")]
    Address(String),
    /// The server does not respond.
    #[error("no server at {server} ({})", root_cause(error))]
    Unreachable {
        /// Address of the server, with its scheme.
        server: String,
        /// Error of the connection.
        error: tonic::transport::Error,
    },
}

/// The three services of one server.
#[derive(Debug, Clone)]
pub struct ClientConnection {
    /// Filter, Score, Place, Admit, Order, `SelectVictims` and sessions.
    pub decisions: DecisionServiceClient<CallTransport>,
    /// Policies: reload, history, rollback.
    pub policies: PolicyServiceClient<CallTransport>,
    /// State: sync, listings, reservations.
    pub state: StateServiceClient<CallTransport>,
}

impl ClientConnection {
    /// Connects to a server; an address without a scheme is taken as `http://`, `unix:/path` is a Unix socket.
    ///
    /// # Errors
    /// The address is invalid or requires TLS, or the server does not respond.
    pub async fn open(server: &str) -> Result<Self, ConnectError> {
        Self::open_with(&ConnectOptions::new(server)).await
    }

    /// Connects to a server, with TLS and credentials.
    ///
    /// # Errors
    /// The address or a TLS file is invalid, or the server does not respond.
    pub async fn open_with(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let url = options.url()?;
        let server = &options.server;
        let mut endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| ConnectError::Address(format!("`{server}` is no address of a server ({error})")))?;
        if url.starts_with("https:") {
            endpoint = endpoint.tls_config(options.tls.channel_config()).map_err(|error| {
                let cause = root_cause(&error);
                ConnectError::Address(format!(
                    "authority, certificate or key cannot be used: {cause}; all of them are PEM"
                ))
            })?;
        }
        let channel = endpoint
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect()
            .await
            .map_err(|error| ConnectError::Unreachable { server: url, error })?;
        let channel = channel.map_err(|error| Status::from_error(error.into()));
        let Some(token) = &options.token else {
            return Ok(Self::with_transport(CallTransport::new(channel)));
        };
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| ConnectError::Address("the token has characters that no header may have".to_owned()))?;
        header.set_sensitive(true);
        Ok(Self::with_transport(CallTransport::new(channel.map_request(
            move |mut request: Request<Body>| {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
                request
            },
        ))))
    }

    /// Clients of the services at the other end of a transport.
    pub fn with_transport(transport: CallTransport) -> Self {
        ClientConnection {
            decisions: DecisionServiceClient::new(transport.clone()).max_decoding_message_size(REPLY_BYTES),
            policies: PolicyServiceClient::new(transport.clone()).max_decoding_message_size(REPLY_BYTES),
            state: StateServiceClient::new(transport).max_decoding_message_size(REPLY_BYTES),
        }
    }
}

/// The innermost cause of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
