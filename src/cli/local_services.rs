//! The services of this program, for commands that evaluate files.

use std::path::PathBuf;
use std::time::Duration;

use crate::app::{self, InProcessServer};
use crate::config::ServerConfig;
use crate::limits::EdgeLimits;
use crate::server::convert::inline;
use crate::server::convert::reader::ReadOptions;
use pumice_console::{CommandError, ListeningServer, LocalServer, LocalServices, ServedServer, StartingServer};
use pumice_engine::model::{ClusterState, LabelKinds};
use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::Compatibility;
use pumice_protocol::v1 as pb;
use pumice_state::{Clock as _, SystemClock};

/// Most resource names in a cluster that is read.
const MAX_RESOURCES: usize = 10_000;

/// The services that `pumice serve` runs.
#[derive(Debug, Clone, Copy)]
pub struct ProgramServices;

impl ProgramServices {
    /// Starts the services, which store all labels of the given kinds of records.
    pub(super) async fn start_keeping(self, labels: LabelKinds) -> Result<LocalServer, CommandError> {
        let server = InProcessServer::start_keeping(labels)
            .await
            .map_err(CommandError::failed)?;
        let connection = server.connection.clone();
        // The closure holds the whole server, which drains when it is dropped.
        Ok(LocalServer::new(connection, move || {
            let whole = &server;
            whole.state.snapshot()
        }))
    }
}

impl LocalServices for ProgramServices {
    fn start(&self) -> StartingServer {
        Box::pin(self.start_keeping(LabelKinds::ALL))
    }

    fn serve(&self, data_dir: Option<PathBuf>) -> ListeningServer {
        Box::pin(async move {
            let config = ServerConfig {
                data_dir,
                ..ServerConfig::on_free_ports()
            };
            let bound = app::bind(config).await.map_err(CommandError::failed)?;
            let address = format!("http://{}", bound.grpc_address());
            let (alive, ended) = tokio::sync::oneshot::channel::<()>();
            pumice_state::tasks::spawn(bound.run(async {
                // A dropped sender ends the server.
                let _: Result<(), _> = ended.await;
            }));
            Ok(ServedServer::new(address, alive))
        })
    }

    fn time(&self) -> Duration {
        SystemClock::default().wall()
    }

    fn read_cluster(&self, cluster: pb::Cluster, compatibility: Compatibility) -> Option<ClusterState> {
        let unlimited = EdgeLimits {
            inline_records: usize::MAX,
            query_resources: MAX_RESOURCES,
            ..EdgeLimits::default()
        };
        let options = ReadOptions::from_registry(REGISTRY, unlimited);
        inline::cluster_state(cluster, compatibility, &options)
            .ok()
            .map(|(state, _)| state)
    }

    fn built_in_policy(&self) -> &'static str {
        crate::server::BUILT_IN_POLICY
    }
}
