//! The gRPC server: its listener, its layers and its services.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;

use super::ServeError;
use super::listen::{GrpcListener, ListenerSecurity};
use super::socket_file::SocketFile;
use super::timed_connection::ConnectionTimeouts;
use crate::config::ServerConfig;
use crate::server::probe::HealthProbe;
use crate::server::{AccessLayer, ConnectionTable, ServerContext, ThrottleLayer, pb, wait_until_true};
use crate::telemetry::CallMetricsLayer;

/// Silence after which a connection is probed.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Longest message of health checks and of reflection.
const SMALL_MESSAGE: usize = 64 << 10;

/// Layers of each call, from the outside in.
pub(super) type CallLayers = (CallMetricsLayer, AccessLayer, ThrottleLayer);

/// Task that serves.
pub(super) type GrpcTask = JoinHandle<Result<(), tonic::transport::Error>>;

/// Listener whose connections have time limits, and TLS if there is a certificate.
pub(super) fn grpc_listener(
    config: &ServerConfig,
    (grpc, socket): (TcpListener, Option<SocketFile>),
    security: Option<ListenerSecurity>,
    table: Arc<ConnectionTable>,
) -> GrpcListener {
    let timeouts = ConnectionTimeouts {
        first_byte: Some(config.limits.edge.keepalive_timeout),
        write: config.limits.edge.stalled,
    };
    GrpcListener::new(grpc, socket, security, table, timeouts)
}

/// Starts to serve. Health is published before the first call can come.
pub(super) async fn spawn_grpc(
    config: &ServerConfig,
    incoming: GrpcListener,
    edge: &Arc<ServerContext>,
    layers: CallLayers,
    probe: HealthProbe,
    stopping: watch::Receiver<bool>,
) -> Result<GrpcTask, ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let rejected = |error: tonic_reflection::server::Error| ServeError::Reflection(error.to_string());
    let current_reflection = reflection().build_v1().map_err(rejected)?;
    // Many tools ask for the older version first, and some know no other.
    let former_reflection = reflection().build_v1alpha().map_err(rejected)?;
    // Before the first call can come: a service that health does not know yet is reported as unknown, not as unready.
    let published = probe.publish_health(&reporter, None).await;
    pumice_state::tasks::spawn(probe.follow_health(reporter, published));
    let mut server = Server::builder()
        .max_concurrent_streams(u32::try_from(config.limits.edge.connection_calls).unwrap_or(u32::MAX))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(config.limits.edge.keepalive_timeout))
        .initial_stream_window_size(pumice_protocol::STREAM_WINDOW)
        .initial_connection_window_size(pumice_protocol::CONNECTION_WINDOW);
    if !config.max_connection_age.is_zero() {
        // A grace of the transport would close the connection without a word before; `close_old` has the grace.
        server = server.max_connection_age(config.max_connection_age);
    }
    let server = server
        .layer(layers)
        .layer(edge.services())
        .add_service(
            health
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(SMALL_MESSAGE),
        )
        .add_service(
            current_reflection
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(SMALL_MESSAGE),
        )
        .add_service(
            former_reflection
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(SMALL_MESSAGE),
        );
    Ok(pumice_state::tasks::spawn(
        server.serve_with_incoming_shutdown(incoming, wait_until_true(stopping)),
    ))
}
