//! A connection to the service.

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Endpoint;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::Failure;
use crate::server::pb::decision_service_client::DecisionServiceClient;
use crate::server::pb::policy_service_client::PolicyServiceClient;
use crate::server::pb::state_service_client::StateServiceClient;

/// Where a server listens that was started without options.
pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:7461";

/// Largest reply that is taken: listings and scores of whole clusters.
const REPLY_BYTES: usize = 256 << 20;

/// What carries calls: a connection to a server, or the services themselves in this process.
pub(super) type Carrier = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// The three services of one server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) decisions: DecisionServiceClient<Carrier>,
    pub(super) policies: PolicyServiceClient<Carrier>,
    pub(super) state: StateServiceClient<Carrier>,
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
        Ok(Connection::over(Carrier::new(
            channel.map_err(|error| Status::from_error(error.into())),
        )))
    }

    /// The services at the other end of a carrier.
    pub(super) fn over(carrier: Carrier) -> Self {
        Connection {
            decisions: DecisionServiceClient::new(carrier.clone()).max_decoding_message_size(REPLY_BYTES),
            policies: PolicyServiceClient::new(carrier.clone()).max_decoding_message_size(REPLY_BYTES),
            state: StateServiceClient::new(carrier).max_decoding_message_size(REPLY_BYTES),
        }
    }
}
