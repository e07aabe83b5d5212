//! The cluster that the server watches, fed through the services of this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::service::Routes;
use tower::{Layer as _, ServiceExt};

use super::{ServeError, random_epoch};
use crate::config::{KUBERNETES, ServerConfig};
use crate::server::ServerContext;
use crate::telemetry::Metrics;
use pumice_diagnosis::explain::{PendingVerdict, explain_pending};
use pumice_live::{
    ClusterCondition, ClusterWatch, PendingReasons, PodBinder, PodReason, ReasonOptions, ReasonWriter, WatchOptions,
};
use pumice_protocol::{CallTransport, ClientConnection};
use pumice_state::{Clock as _, SystemClock};

/// Checks the credentials of the watched cluster. Whether its API server answers shows later: it may start after this
/// process.
pub(super) async fn check_access(config: &ServerConfig) -> Result<(), ServeError> {
    if config.cluster.is_watched {
        Box::pin(config.cluster.access().client())
            .await
            .map_err(ServeError::Cluster)?;
    }
    Ok(())
}

/// Binder of pods, if the settings ask for it.
pub(super) fn pod_binder(config: &ServerConfig) -> Option<PodBinder> {
    config.cluster.binds.then(|| PodBinder::new(config.cluster.access()))
}

/// Services of this process, asked why pods wait.
#[derive(Debug)]
struct OwnReasons(ClientConnection);

impl PendingReasons for OwnReasons {
    async fn reasons(&self, pods: Vec<String>) -> Result<BTreeMap<String, PodReason>, String> {
        let services = self.0.clone();
        // A thread of its own: an explanation reads all records.
        let explain =
            move || Handle::current().block_on(explain_pending(services, &pods, SystemClock::default().wall()));
        let explained = pumice_state::tasks::run_blocking(explain).await;
        let verdicts = explained
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        let reason = |PendingVerdict { sentence, job }| PodReason {
            sentence,
            pod_group: job,
        };
        Ok(verdicts
            .into_iter()
            .map(|(pod, verdict)| (pod, reason(verdict)))
            .collect())
    }
}

/// Starts the writer of reasons, if the settings ask for it.
fn spawn_reasons(config: &ServerConfig, services: ClientConnection) -> Option<JoinHandle<()>> {
    if config.cluster.explained_schedulers.is_empty() {
        return None;
    }
    let options = ReasonOptions {
        schedulers: config.cluster.explained_schedulers.clone(),
        holder: format!("pumice-{}-{:x}", std::process::id(), random_epoch()),
    };
    let writer = ReasonWriter::new(config.cluster.access(), options, OwnReasons(services));
    Some(pumice_state::tasks::spawn(writer.run()))
}

/// Watched cluster, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct WatchedCluster {
    watching: Option<(JoinHandle<()>, Arc<ClusterCondition>)>,
    /// Writer of the reasons of waiting pods.
    writing: Option<JoinHandle<()>>,
}

impl WatchedCluster {
    /// Starts the watch, if the settings ask for it.
    pub(super) fn start(config: &ServerConfig, edge: &Arc<ServerContext>, metrics: &Metrics) -> Self {
        if !config.cluster.is_watched {
            return Self::default();
        }
        let condition = Arc::new(ClusterCondition::default());
        metrics.follow_cluster(Arc::clone(&condition));
        let services = edge.services().layer(Routes::default());
        let services = ServiceExt::<Request<Body>>::map_err(services, |never| match never {});
        let services = ClientConnection::with_transport(CallTransport::new(services));
        let options = WatchOptions {
            source: KUBERNETES.to_owned(),
            // Each start of the server forgets its sources.
            source_epoch: 1,
            namespaces: config.cluster.namespaces.clone(),
            heartbeat: config.limits.state.source_stale / 3,
            silence: config.limits.edge.watch_silence,
            pod_release: edge.pod_release(),
            ends_if_fenced: false,
        };
        let watch = ClusterWatch::new(
            config.cluster.access(),
            options,
            services.clone(),
            Arc::clone(&condition),
        );
        let task = pumice_state::tasks::spawn(async move {
            let error = watch.run().await;
            tracing::error!(%error, "the cluster is no longer watched");
        });
        let writing = spawn_reasons(config, services);
        Self {
            watching: Some((task, condition)),
            writing,
        }
    }

    pub(super) fn condition(&self) -> Option<&Arc<ClusterCondition>> {
        self.watching.as_ref().map(|(_, condition)| condition)
    }
}

impl Drop for WatchedCluster {
    fn drop(&mut self) {
        let watching = self.watching.as_ref().map(|(task, _)| task);
        for task in watching.into_iter().chain(&self.writing) {
            task.abort();
        }
    }
}
