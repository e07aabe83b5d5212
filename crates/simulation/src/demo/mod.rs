//! `pumice demo`: a server of its own, small clusters, real calls, and results that are checked.

mod browsed_cluster;
mod card_quotas;
mod card_trace;
mod examples;
mod fairness;
mod harness;
mod openb;
mod reload;
mod session;

use std::path::PathBuf;

use clap::Args;

use harness::DemoHarness;
use pumice_console::{CommandError, output};
use pumice_protocol::ClientConnection;

/// Arguments of `pumice demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Directory with the openb trace: also place all its tasks. Files: `openb_node_list_all_node.csv`,
    /// `openb_pod_list_default.csv` and, for tasks that name cards, `openb_pod_list_gpuspec33.csv`
    #[arg(long, value_name = "DIR", env = "PUMICE_OPENB")]
    openb: Option<PathBuf>,
    /// After the checks, keep the server with four queues and a job that waits, and print the address of its console; Ctrl-C
    /// ends it
    #[arg(long)]
    pub console: bool,
}

/// Runs all scenes against a server and checks the results of each scene.
///
/// # Errors
/// A call fails, or a check does.
pub async fn run_scenes(connection: ClientConnection, args: DemoArgs) -> Result<(), CommandError> {
    let mut harness = DemoHarness::new(connection);
    examples::scarce_resources(&mut harness).await?;
    examples::best_practice(&mut harness).await?;
    examples::proportional(&mut harness).await?;
    reload::run(&mut harness).await?;
    fairness::run_examples(&mut harness).await?;
    card_quotas::run_examples(&mut harness).await?;
    card_trace::run_small(&mut harness).await?;
    match args.openb {
        Some(folder) => {
            openb::run(&mut harness, &folder).await?;
            card_trace::run_openb(&mut harness, &folder).await?;
        }
        None => output::line("\nWith PUMICE_OPENB=DIR the demo also places the 8,152 tasks of a real GPU cluster.")?,
    }
    if args.console {
        browsed_cluster::load(&mut harness).await?;
    }
    harness.finish()
}
