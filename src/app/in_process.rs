//! The services in this process, without a socket, for commands that evaluate files.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;
use tonic::transport::server::TcpConnectInfo;
use tower::{Layer, Service, ServiceExt};

use super::grpc_server::CallLayers;
use crate::access::AccessKeeper;
use crate::limits::EdgeLimits;
use crate::server::{AccessLayer, BUILT_IN_POLICY, ConnectionTable, MemoryBudget, ServerContext, ThrottleLayer};
use crate::telemetry::{CallMetricsLayer, Metrics};
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

/// Transport to services in this process.
fn transport<S>(services: S) -> CallTransport
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    CallTransport::new(services.map_err(|never| match never {}))
}

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
        Self::start_with(stored_labels, |edge, _| {
            transport(edge.services().layer(Routes::default()))
        })
        .await
    }

    /// Starts the services behind all layers of a server. The connection is one of its connections.
    ///
    /// # Errors
    /// No thread can be started.
    pub async fn start_layered() -> Result<Self, InProcessError> {
        let layered = |services: &Arc<ServerContext>, metrics: &Arc<Metrics>| {
            let limits = EdgeLimits::default();
            let table = ConnectionTable::new(limits.connections, Arc::clone(metrics));
            let connection = table.admit(TcpConnectInfo {
                local_addr: None,
                remote_addr: None,
            });
            let keeper = AccessKeeper::unrestricted(Arc::clone(metrics));
            let layers: CallLayers = (
                CallMetricsLayer::new(metrics, false),
                AccessLayer { keeper },
                ThrottleLayer::new(&limits, &MemoryBudget::new(&limits, &table), services.workers()),
            );
            let layered = layers.layer(services.services().layer(Routes::default()));
            transport(layered.map_request(move |mut request: Request<Body>| {
                request.extensions_mut().insert(connection.clone());
                request
            }))
        };
        Self::start_with(LabelKinds::ALL, layered).await
    }

    async fn start_with(
        stored_labels: LabelKinds,
        transport: impl FnOnce(&Arc<ServerContext>, &Arc<Metrics>) -> CallTransport,
    ) -> Result<Self, InProcessError> {
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
        let owned = (Arc::clone(&state), Arc::clone(&metrics));
        let edge = ServerContext::new(owned.0, owned.1, limits, draining, 1, stored_labels);
        let mut connection = ClientConnection::with_transport(transport(&edge, &metrics));
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
