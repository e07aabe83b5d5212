//! The services in this process, without a socket, for commands that evaluate files.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::ServiceExt;

use crate::limits::EdgeLimits;
use crate::server::{BUILT_IN_POLICY, ServerContext};
use crate::telemetry::Metrics;
use pumice_engine::model::LabelKinds;
use pumice_protocol::v1 as pb;
use pumice_protocol::{CallTransport, ClientConnection};
use pumice_state::{SharedState, StateLimits, StateOptions, StateStartError, SystemClock};

/// Largest message between the command line and its own services: no message leaves the process.
const MESSAGE_BYTES: usize = 1 << 30;
/// Largest number of records in one query.
const INLINE_RECORDS: usize = 5_000_000;

/// Error of services that do not start.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// The state does not start.
    #[error(transparent)]
    State(#[from] StateStartError),
    /// The built-in policy is rejected.
    #[error("the built-in policy: {0}")]
    Policy(#[from] Box<tonic::Status>),
}

/// Policy that reads only labels that plugins name.
const LABEL_FREE_POLICY: &str = "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]\n";

/// The services over their own state, which begins empty.
#[derive(Debug)]
pub struct InProcessServer {
    /// Connection to the services.
    pub connection: ClientConnection,
    /// State of the services.
    pub state: Arc<SharedState>,
    /// Drains the services when dropped.
    _drain_on_drop: watch::Sender<bool>,
}

impl InProcessServer {
    /// Starts the services under the built-in policy. They keep all labels, so any policy can be activated after the
    /// records.
    ///
    /// # Errors
    /// No thread can be started.
    pub async fn start() -> Result<Self, InProcessError> {
        Self::start_keeping(LabelKinds::ALL).await
    }

    /// Starts the services. Unless all labels are kept, they begin under a policy that reads none.
    ///
    /// # Errors
    /// No thread can be started.
    pub async fn start_keeping(stored_labels: LabelKinds) -> Result<Self, InProcessError> {
        let options = StateOptions {
            limits: StateLimits::default(),
            epoch: 1,
            ..StateOptions::default()
        };
        let state = SharedState::start(options, Arc::new(SystemClock::default()))?;
        let limits = EdgeLimits {
            request_bytes: MESSAGE_BYTES,
            response_bytes: MESSAGE_BYTES,
            inline_records: INLINE_RECORDS,
            ..EdgeLimits::default()
        };
        let (sender, draining) = watch::channel(false);
        let metrics = Arc::new(Metrics::new());
        let edge = ServerContext::storing_labels(Arc::clone(&state), metrics, limits, draining, 1, stored_labels);
        let routes = ServiceExt::<Request<Body>>::map_err(edge.routes(), |never| match never {});
        let mut connection = ClientConnection::with_transport(CallTransport::new(routes));
        let request = pb::ReloadPolicyRequest {
            document: if stored_labels == LabelKinds::ALL {
                BUILT_IN_POLICY.to_owned()
            } else {
                LABEL_FREE_POLICY.to_owned()
            },
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await.map_err(Box::new)?;
        Ok(InProcessServer {
            connection,
            state,
            _drain_on_drop: sender,
        })
    }
}
