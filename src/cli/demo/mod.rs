//! `pumice demo`: a server of its own, small clusters, real calls, and answers that are checked.

mod cards;
mod fairness;
mod openb;
mod reload;
mod scenes;
mod stage;
mod trace;

use std::path::PathBuf;

use clap::Args;

use super::connect::Connection;
use super::{Failure, output};
use crate::app;
use crate::config::Config;
use stage::Stage;

/// Arguments of `pumice demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Folder with the openb trace (`openb_node_list_all_node.csv`, `openb_pod_list_default.csv` and, for tasks that name
    /// cards, `openb_pod_list_gpuspec33.csv`): place all its tasks, too
    #[arg(long, value_name = "DIR", env = "PUMICE_OPENB")]
    openb: Option<PathBuf>,
}

/// Runs it.
pub(super) async fn run(args: DemoArgs) -> Result<(), Failure> {
    let bound = app::bind(Config::on_free_ports())
        .await
        .map_err(|error| Failure::said(format!("error: {error}")))?;
    let address = format!("http://{}", bound.grpc_address());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // A dropped sender means the same as a sent word: the demo is over.
    let server = tokio::spawn(bound.run(async move { drop(stopped.await) }));
    output::line(&format!(
        "pumice serves on {address}, under its built-in policy; every answer below is a call's."
    ))?;
    let result = play(Connection::open(&address).await?, args).await;
    drop(stop);
    match server.await {
        Ok(Ok(())) => result,
        Ok(Err(error)) => Err(Failure::said(format!("error: {error}"))),
        Err(error) => Err(Failure::said(format!("error: the server ended badly: {error}"))),
    }
}

async fn play(connection: Connection, args: DemoArgs) -> Result<(), Failure> {
    let mut stage = Stage::new(connection);
    scenes::scarce_resources(&mut stage).await?;
    scenes::best_practice(&mut stage).await?;
    scenes::proportional(&mut stage).await?;
    reload::run(&mut stage).await?;
    fairness::figures(&mut stage).await?;
    cards::examples(&mut stage).await?;
    trace::small(&mut stage).await?;
    match args.openb {
        Some(folder) => {
            openb::run(&mut stage, &folder).await?;
            trace::openb(&mut stage, &folder).await?;
        }
        None => output::line("\nWith PUMICE_OPENB=DIR the demo also places the 8,152 tasks of a real GPU cluster.")?,
    }
    stage.end()
}
