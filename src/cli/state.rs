//! `pumice state`: loads a cluster, shows the state of a server.

use clap::Subcommand;

use super::{state_forget, state_load, state_show, state_sync, state_watch};
use pumice_console::CommandError;

/// Command on state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// Load files as one full sync: output of
    /// `kubectl get nodes,pods,namespaces,services,replicasets,statefulsets,queues,podgroups -A -o json` (or yaml), or
    /// openb CSV
    Load(state_load::LoadStateArgs),
    /// Watch a Kubernetes cluster and send its changes to a running server until interrupted
    Sync(state_sync::SyncStateArgs),
    /// Show the server, its nodes, queues, jobs, tasks or cards
    Show(state_show::ShowStateArgs),
    /// Print changes as they become visible
    Watch(state_watch::WatchStateArgs),
    /// Compare files with the state of the server; exit code 1: they differ
    Diff(state_watch::DiffStateArgs),
    /// Forget a source: remove its records and the reservations of its jobs
    Forget(state_forget::ForgetSourceArgs),
}

/// Runs the command.
pub(super) async fn run(command: StateCommand) -> Result<(), CommandError> {
    match command {
        StateCommand::Load(args) => state_load::run(args).await,
        StateCommand::Sync(args) => state_sync::run(args).await,
        StateCommand::Show(args) => state_show::run(args).await,
        StateCommand::Watch(args) => state_watch::watch(args).await,
        StateCommand::Forget(args) => state_forget::run(args).await,
        StateCommand::Diff(args) => CommandError::require_same(state_watch::diff(args).await?),
    }
}
