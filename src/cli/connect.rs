//! A connection to the service.

use tonic::transport::{Channel, Endpoint};

use super::Failure;
use crate::server::pb::decision_service_client::DecisionServiceClient;
use crate::server::pb::policy_service_client::PolicyServiceClient;
use crate::server::pb::state_service_client::StateServiceClient;

/// Where a server listens that was started without options.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:7461";

/// Largest reply that is taken: listings and scores of whole clusters.
const REPLY_BYTES: usize = 256 << 20;

/// The three services of one server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) decisions: DecisionServiceClient<Channel>,
    pub(super) policies: PolicyServiceClient<Channel>,
    pub(super) state: StateServiceClient<Channel>,
}

impl Connection {
    /// Connects to a server; an address without a scheme is taken as `http://`.
    pub(super) async fn open(server: &str) -> Result<Self, Failure> {
        let url = if server.contains("://") {
            server.to_owned()
        } else {
            format!("http://{server}")
        };
        let unreachable = |error| Failure::Unreachable {
            server: url.clone(),
            error,
        };
        let channel = Endpoint::from_shared(url.clone())
            .map_err(unreachable)?
            .connect()
            .await
            .map_err(unreachable)?;
        Ok(Connection {
            decisions: DecisionServiceClient::new(channel.clone()).max_decoding_message_size(REPLY_BYTES),
            policies: PolicyServiceClient::new(channel.clone()).max_decoding_message_size(REPLY_BYTES),
            state: StateServiceClient::new(channel).max_decoding_message_size(REPLY_BYTES),
        })
    }
}
