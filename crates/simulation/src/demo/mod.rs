//! `pumice demo`: a server of its own, small clusters, real calls, and results that are checked.

mod card_quotas;
mod card_trace;
mod examples;
mod fairness;
mod harness;
mod openb;
mod reload;

use std::path::PathBuf;

use clap::Args;

use super::{CommandError, output};
use harness::DemoHarness;
use pumice::app;
use pumice::config::ServerConfig;
use pumice_protocol::ClientConnection;

/// Arguments of `pumice demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Folder with the openb trace (`openb_node_list_all_node.csv`, `openb_pod_list_default.csv` and, for tasks that name
    /// cards, `openb_pod_list_gpuspec33.csv`): place all its tasks, too
    #[arg(long, value_name = "DIR", env = "PUMICE_OPENB")]
    openb: Option<PathBuf>,
}

/// Runs all scenes.
pub(super) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    let bound = app::bind(ServerConfig::on_free_ports())
        .await
        .map_err(|error| CommandError::message(format!("error: {error}")))?;
    let address = format!("http://{}", bound.grpc_address());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // A dropped sender means the same as a sent word: the demo is over.
    let server = tokio::spawn(bound.run(async move { drop(stopped.await) }));
    output::line(&format!(
        "pumice serves on {address}, under its built-in policy; every answer below is a call's."
    ))?;
    let result = run_examples(ClientConnection::open(&address).await?, args).await;
    drop(stop);
    match server.await {
        Ok(Ok(())) => result,
        Ok(Err(error)) => Err(CommandError::message(format!("error: {error}"))),
        Err(error) => Err(CommandError::message(format!("error: the server ended badly: {error}"))),
    }
}

async fn run_examples(connection: ClientConnection, args: DemoArgs) -> Result<(), CommandError> {
    let mut stage = DemoHarness::new(connection);
    examples::scarce_resources(&mut stage).await?;
    examples::best_practice(&mut stage).await?;
    examples::proportional(&mut stage).await?;
    reload::run(&mut stage).await?;
    fairness::run_examples(&mut stage).await?;
    card_quotas::run_examples(&mut stage).await?;
    card_trace::run_small(&mut stage).await?;
    match args.openb {
        Some(folder) => {
            openb::run(&mut stage, &folder).await?;
            card_trace::run_openb(&mut stage, &folder).await?;
        }
        None => output::line("\nWith PUMICE_OPENB=DIR the demo also places the 8,152 tasks of a real GPU cluster.")?,
    }
    stage.finish()
}
