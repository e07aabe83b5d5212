//! The cluster that the server watches, fed through the services of this process.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::ServiceExt;

use super::ServeError;
use crate::config::{KUBERNETES, ServerConfig};
use crate::server::ServerContext;
use crate::telemetry::Metrics;
use pumice_live::{ClusterCondition, ClusterWatch, WatchOptions};
use pumice_protocol::{CallTransport, ClientConnection};

/// Checks the credentials of the watched cluster. Whether its API server answers shows later: it may start after this
/// process.
pub(super) async fn check_access(config: &ServerConfig) -> Result<(), ServeError> {
    if config.cluster.is_watched {
        config.cluster.access.client().await.map_err(ServeError::Cluster)?;
    }
    Ok(())
}

/// Watched cluster, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct WatchedCluster {
    watching: Option<(JoinHandle<()>, Arc<ClusterCondition>)>,
}

impl WatchedCluster {
    /// Starts the watch, if the settings ask for it.
    pub(super) fn start(config: &ServerConfig, edge: &Arc<ServerContext>, metrics: &Metrics) -> Self {
        if !config.cluster.is_watched {
            return Self::default();
        }
        let condition = Arc::new(ClusterCondition::default());
        metrics.follow_cluster(Arc::clone(&condition));
        let routes = ServiceExt::<Request<Body>>::map_err(edge.routes(), |never| match never {});
        let services = ClientConnection::with_transport(CallTransport::new(routes));
        let options = WatchOptions {
            source: KUBERNETES.to_owned(),
            // Each start of the server forgets its sources.
            source_epoch: 1,
            namespaces: config.cluster.namespaces.clone(),
            heartbeat: config.limits.state.source_stale / 3,
            lists: config.cluster.lists,
        };
        let watch = ClusterWatch::new(
            config.cluster.access.clone(),
            options,
            services.state,
            Arc::clone(&condition),
        );
        let task = tokio::spawn(async move {
            let error = watch.run().await;
            tracing::error!(%error, "the cluster is no longer watched");
        });
        Self {
            watching: Some((task, condition)),
        }
    }

    /// Condition of the watch.
    pub(super) fn condition(&self) -> Option<&Arc<ClusterCondition>> {
        self.watching.as_ref().map(|(_, condition)| condition)
    }
}

impl Drop for WatchedCluster {
    fn drop(&mut self) {
        if let Some((task, _)) = &self.watching {
            task.abort();
        }
    }
}
