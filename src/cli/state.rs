//! `pumice state`: load a cluster, show what the server knows.

use clap::Subcommand;

use super::{CommandError, policy, state_forget, state_load, state_show, state_watch};

/// What to do with state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// Send files as one snapshot: `kubectl get nodes,pods,queues,podgroups -A -o json` (or yaml), or openb CSV
    Load(state_load::LoadStateArgs),
    /// Show the server, its nodes, queues, jobs or tasks
    Show(state_show::ShowStateArgs),
    /// Follow what changes, as it becomes visible
    Watch(state_watch::WatchStateArgs),
    /// Compare files with what the server knows; exit code 1: they differ
    Diff(state_watch::DiffStateArgs),
    /// Forget a source: its records, what its jobs had reserved, and its slot
    Forget(state_forget::ForgetSourceArgs),
}

/// Runs it.
pub(super) async fn run(command: StateCommand) -> Result<(), CommandError> {
    match command {
        StateCommand::Load(args) => state_load::run(args).await,
        StateCommand::Show(args) => state_show::run(args).await,
        StateCommand::Watch(args) => state_watch::watch(args).await,
        StateCommand::Forget(args) => state_forget::run(args).await,
        StateCommand::Diff(args) => policy::require_same(state_watch::diff(args).await?),
    }
}
