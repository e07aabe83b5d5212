//! A connection to the service.

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Endpoint;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::CommandError;
use crate::server::pb::decision_service_client::DecisionServiceClient;
use crate::server::pb::policy_service_client::PolicyServiceClient;
use crate::server::pb::state_service_client::StateServiceClient;
use crate::server::{CONNECTION_WINDOW, STREAM_WINDOW};

/// Address of a server that was started without options.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:7461";

/// Largest reply: listings and scores of whole clusters.
const REPLY_BYTES: usize = 256 << 20;

/// Transport of calls: a connection to a server, or the services in this process.
pub(super) type CallTransport = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// The three services of one server.
#[derive(Debug, Clone)]
pub(super) struct ClientConnection {
    pub(super) decisions: DecisionServiceClient<CallTransport>,
    pub(super) policies: PolicyServiceClient<CallTransport>,
    pub(super) state: StateServiceClient<CallTransport>,
}

impl ClientConnection {
    /// Connects to a server; an address without a scheme is taken as `http://`, `unix:/path` is a Unix socket.
    pub(super) async fn open(server: &str) -> Result<Self, CommandError> {
        let url = url(server)?;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| CommandError::Usage(format!("error: `{server}` is no address of a server ({error})")))?;
        let channel = endpoint
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect()
            .await
            .map_err(|error| CommandError::Unreachable { server: url, error })?;
        Ok(ClientConnection::with_transport(CallTransport::new(
            channel.map_err(|error| Status::from_error(error.into())),
        )))
    }

    /// Clients of the services at the other end of a transport.
    pub(super) fn with_transport(carrier: CallTransport) -> Self {
        ClientConnection {
            decisions: DecisionServiceClient::new(carrier.clone()).max_decoding_message_size(REPLY_BYTES),
            policies: PolicyServiceClient::new(carrier.clone()).max_decoding_message_size(REPLY_BYTES),
            state: StateServiceClient::new(carrier).max_decoding_message_size(REPLY_BYTES),
        }
    }
}

/// The address with its scheme.
fn url(server: &str) -> Result<String, CommandError> {
    if server.starts_with("https:") {
        return Err(CommandError::Usage(format!(
            "error: {server}: Pumice speaks plain text only, TLS is not served; put a proxy that ends TLS beside the \
             server, and name the proxy's plain side"
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
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("TLS is not served"), "{refused}");
    }
}
