//! The services in this process, without a socket: for what is judged from files alone.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::ServiceExt;

use super::CommandError;
use super::connect::{CallTransport, ClientConnection};
use crate::server::ServerContext;
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::state::{SharedState, StateLimits, StateOptions, SystemClock};
use crate::telemetry::Metrics;

/// Bytes of one message between the command line and its own services: nothing is sent, so nothing is saved by less.
const MESSAGE_BYTES: usize = 1 << 30;
/// Records that one question may bring.
const INLINE_RECORDS: usize = 5_000_000;

/// The services over a state of their own, which begins empty.
#[derive(Debug)]
pub(super) struct InProcessServer {
    pub(super) connection: ClientConnection,
    /// Tells the services to drain when it is gone.
    _drain_on_drop: watch::Sender<bool>,
}

impl InProcessServer {
    /// Starts them, under the built-in policy.
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
        let edge = ServerContext::new(state, Arc::new(Metrics::new()), limits, draining, 1);
        let routes = ServiceExt::<Request<Body>>::map_err(edge.routes(), |never| match never {});
        let mut connection = ClientConnection::with_transport(CallTransport::new(routes));
        let request = pb::ReloadPolicyRequest {
            document: crate::server::BUILT_IN_POLICY.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await?;
        Ok(InProcessServer {
            connection,
            _drain_on_drop: sender,
        })
    }
}
