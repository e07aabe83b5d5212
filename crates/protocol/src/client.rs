//! A connection to a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Endpoint;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::v1::decision_service_client::DecisionServiceClient;
use crate::v1::policy_service_client::PolicyServiceClient;
use crate::v1::state_service_client::StateServiceClient;

/// Address of a server that was started without options.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7461";
/// Address of a server's probes and metrics, unless another is configured.
pub const DEFAULT_METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7462);

/// Bytes of one direction of a call that may be under way before the receiver has taken any: a part of a full sync, or
/// all scores of 10,000 nodes for 50 tasks, without a pause. The default of HTTP/2 is 64 KiB.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Bytes that all calls of a connection together may have under way, which bounds the memory held for a slow reader.
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
    /// No server answers there.
    #[error("no server at {server} ({error})")]
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
    /// The address cannot be read or asks for TLS, or no server answers there.
    pub async fn open(server: &str) -> Result<Self, ConnectError> {
        let url = url(server)?;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| ConnectError::Address(format!("`{server}` is no address of a server ({error})")))?;
        let channel = endpoint
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect()
            .await
            .map_err(|error| ConnectError::Unreachable { server: url, error })?;
        Ok(ClientConnection::with_transport(CallTransport::new(
            channel.map_err(|error| Status::from_error(error.into())),
        )))
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

/// The address with its scheme.
fn url(server: &str) -> Result<String, ConnectError> {
    if server.starts_with("https:") {
        return Err(ConnectError::Address(format!(
            "{server}: Pumice speaks plain text only, TLS is not served; put a proxy that ends TLS beside the server, and \
             name the proxy's plain side"
        )));
    }
    if server.contains("://") || server.starts_with("unix:") {
        Ok(server.to_owned())
    } else {
        Ok(format!("http://{server}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_omit_the_scheme_and_tls_is_rejected() {
        assert_eq!(url("lab:7461").unwrap(), "http://lab:7461");
        assert_eq!(url("http://lab:7461").unwrap(), "http://lab:7461");
        assert_eq!(url("unix:/run/pumice.sock").unwrap(), "unix:/run/pumice.sock");
        let refused = url("https://lab:7461").unwrap_err();
        assert!(refused.to_string().contains("TLS is not served"), "{refused}");
    }
}
