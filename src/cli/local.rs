//! The services in this process, without a socket: for what is judged from files alone.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::ServiceExt;

use super::Failure;
use super::connect::{Carrier, Connection};
use crate::server::Edge;
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::state::{Limits, State, StateOptions, SystemClock};
use crate::telemetry::Metrics;

/// Bytes of one message between the command line and its own services: nothing is sent, so nothing is saved by less.
const MESSAGE_BYTES: usize = 1 << 30;
/// Records that one question may bring.
const RECORDS: usize = 5_000_000;

/// The services over a state of their own, which begins empty.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) connection: Connection,
    /// Tells the services to drain when it is gone.
    _draining: watch::Sender<bool>,
}

impl Local {
    /// Starts them, under the built-in policy.
    pub(super) async fn start() -> Result<Self, Failure> {
        let options = StateOptions {
            limits: Limits::default(),
            epoch: 1,
            ..StateOptions::default()
        };
        let state = State::start(options, Arc::new(SystemClock::default()))
            .map_err(|error| Failure::said(format!("error: {error}")))?;
        let limits = EdgeLimits {
            request_bytes: MESSAGE_BYTES,
            answer_bytes: MESSAGE_BYTES,
            inline_records: RECORDS,
            ..EdgeLimits::default()
        };
        let (sender, draining) = watch::channel(false);
        let edge = Edge::new(state, Arc::new(Metrics::new()), limits, draining, 1);
        let routes = ServiceExt::<Request<Body>>::map_err(edge.routes(), |never| match never {});
        let mut connection = Connection::over(Carrier::new(routes));
        let request = pb::ReloadPolicyRequest {
            document: crate::server::BUILT_IN_POLICY.to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        connection.policies.reload_policy(request).await?;
        Ok(Local {
            connection,
            _draining: sender,
        })
    }
}
