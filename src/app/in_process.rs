//! The services in this process, without a socket, for commands that judge files.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::ServiceExt;

use super::CommandError;
use pumice::limits::EdgeLimits;
use pumice::server::ServerContext;
use pumice::telemetry::Metrics;
use pumice_protocol::v1 as pb;
use pumice_protocol::{CallTransport, ClientConnection};
use pumice_state::{SharedState, StateLimits, StateOptions, SystemClock};

/// Largest message between the command line and its own services: no message leaves the process.
const MESSAGE_BYTES: usize = 1 << 30;
/// Largest number of records in one query.
const INLINE_RECORDS: usize = 5_000_000;

/// The services over their own state, which begins empty.
#[derive(Debug)]
pub(super) struct InProcessServer {
    pub(super) connection: ClientConnection,
    pub(super) state: Arc<SharedState>,
    /// Drains the services when dropped.
    _drain_on_drop: watch::Sender<bool>,
}

impl InProcessServer {
    /// Starts the services under the built-in policy.
    pub(super) async fn start() -> Result<Self, CommandError> {
        let options = StateOptions {
            limits: StateLimits::default(),
            epoch: 1,
            ..StateOptions::default()
        };
        let state = SharedState::start(options, Arc::new(SystemClock::default()))
            .map_err(|error| CommandError::message(format!("error: {error}")))?;
        let limits = EdgeLimits {
            request_bytes: MESSAGE_BYTES,
            response_bytes: MESSAGE_BYTES,
            inline_records: INLINE_RECORDS,
            ..EdgeLimits::default()
        };
        let (sender, draining) = watch::channel(false);
        let edge = ServerContext::new(Arc::clone(&state), Arc::new(Metrics::new()), limits, draining, 1);
        let routes = ServiceExt::<Request<Body>>::map_err(edge.routes(), |never| match never {});
        let mut connection = ClientConnection::with_transport(CallTransport::new(routes));
        let request = pb::ReloadPolicyRequest {
            document: pumice::server::BUILT_IN_POLICY.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await?;
        Ok(InProcessServer {
            connection,
            state,
            _drain_on_drop: sender,
        })
    }
}
