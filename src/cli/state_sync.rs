//! `pumice state sync`: a cluster as a source of a running server, for as long as the command runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::serve::shutdown_signal;
use crate::config::{KUBERNETES, namespaces};
use crate::telemetry::{self, CollectorTls, LogFormat, LogOptions};
use pumice_console::full_sync::{next_epoch, pod_release};
use pumice_console::{CommandError, CredentialArgs, listings, output};
use pumice_live::{ClusterAccess, ClusterCondition, ClusterWatch, WatchOptions};
use pumice_protocol::ClientConnection;

/// Limit of the server on the silence of a source.
const SOURCE_STALE: &str = "source_stale_ms";

/// Arguments of `pumice state sync`.
#[derive(Debug, Args)]
pub(super) struct SyncStateArgs {
    /// Name of the source
    #[arg(long, value_name = "NAME", default_value = KUBERNETES)]
    source: String,
    /// Kubeconfig of the cluster [default: files of KUBECONFIG, ~/.kube/config or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace whose pods, pod groups, claims and owners of pods are watched, such as train; repeatable [default:
    /// all]
    #[arg(long = "namespace", value_name = "NAME", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Address of the server, such as 127.0.0.1:7461
    #[arg(long, value_name = "URL", env = "PUMICE_SERVER", default_value = pumice_protocol::DEFAULT_SERVER)]
    server: String,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Filter of log lines on standard error, such as debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Feeds the source until a signal stops the command, or another process feeds it.
pub(super) async fn run(args: SyncStateArgs) -> Result<(), CommandError> {
    let mut shutdown = Box::pin(shutdown_signal());
    let access = ClusterAccess {
        kubeconfig: args.kubeconfig,
        context: args.context,
    };
    let namespaces = namespaces(&args.namespaces).map_err(CommandError::failed)?;
    // What is wrong with the credentials shows before anything runs.
    tokio::select! {
        read = access.client() => {
            read.map_err(CommandError::failed)?;
        }
        () = &mut shutdown => return Ok(()),
    }
    let mut connection = ClientConnection::open_with(&args.credentials.read(&args.server)?).await?;
    let source_epoch = next_epoch(&mut connection, &args.source).await?;
    let pod_release = pod_release(&mut connection).await?;
    let heartbeat = stale_time(&mut connection).await? / 3;
    let log = LogOptions {
        filter: &args.log,
        format: LogFormat::Text,
        otlp_endpoint: None,
        otlp_tls: CollectorTls::default(),
        otlp_service_name: "pumice",
        trace_ratio: 0.0,
    };
    let traces = telemetry::start_logging(&log).map_err(CommandError::failed)?;
    let options = WatchOptions {
        source: args.source,
        source_epoch,
        namespaces,
        heartbeat,
        silence: pumice_live::SILENCE,
        pod_release,
        ends_if_fenced: true,
    };
    let watch = ClusterWatch::new(access, options, connection, Arc::new(ClusterCondition::default()));
    let ended = tokio::select! {
        () = shutdown => None,
        error = watch.run() => Some(error),
    };
    traces.stop().await;
    match ended {
        None => {
            output::note("the source is no longer fed; its records stay until `pumice state forget`");
            Ok(())
        }
        Some(error) => Err(CommandError::failed(error)),
    }
}

/// Silence after which the server takes a source for stale.
async fn stale_time(connection: &mut ClientConnection) -> Result<Duration, CommandError> {
    let info = listings::server_info(connection).await?;
    let limit = info.limits.iter().find(|limit| limit.name == SOURCE_STALE);
    Ok(limit.map_or(Duration::from_mins(1), |limit| {
        Duration::from_millis(limit.value.max(3))
    }))
}
