//! `pumice explain`: why does my job wait?

mod free_capacity;
mod gather;
mod phrases;
mod pinned_client;
mod report;
mod show;
mod target;
pub(super) mod task_classes;
mod trial;
mod verdict;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::connect::ClientConnection;
use super::policy_args::PolicyArgs;
use super::{ClientArgs, CommandError, OutputFormat, output, state_load};
use crate::import::{AmountRules, ClusterImport};
use crate::server::pb;
use pinned_client::PinnedClient;
use target::ExplainTarget;

/// What is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainKind {
    /// A stored job
    Job,
    /// A stored task
    Task,
}

/// Arguments of `pumice explain`.
#[derive(Debug, Args)]
#[command(override_usage = "pumice explain [OPTIONS] job|task NAME\n       pumice explain [OPTIONS] --file FILE")]
pub(super) struct ExplainArgs {
    /// What is explained
    #[arg(value_enum, required_unless_present = "file", requires = "name")]
    kind: Option<ExplainKind>,
    /// Its name, namespace/name; the namespace may be left out where there is only one of that name
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Explain the pods of a file, as if they waited, instead
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "name"])]
    file: Option<PathBuf>,
    /// How the amounts of pods in a file are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::amount_rules_parser())]
    derivation: AmountRules,
    /// Best nodes that are shown
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    top: u32,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(super) async fn run(args: ExplainArgs) -> Result<(), CommandError> {
    let wanted = match (&args.file, args.kind, args.name) {
        (Some(file), ..) => from_file(file, args.derivation)?,
        (None, Some(ExplainKind::Task), Some(name)) => ExplainTarget::Task(name),
        (None, _, name) => ExplainTarget::Job(name.unwrap_or_default()),
    };
    let connection = ClientConnection::open(&args.client.server).await?;
    let mut asker = PinnedClient::open(connection, args.policy.latest_ref()).await?;
    let report = gather::explain(&mut asker, wanted, args.top).await;
    asker.close().await;
    let report = report?;
    match args.client.output {
        OutputFormat::Table => show::show(&report),
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&report);
            output::line(&text.map_err(|error| CommandError::message(format!("error: as JSON: {error}")))?)
        }
    }
}

fn from_file(file: &std::path::Path, counting: AmountRules) -> Result<ExplainTarget, CommandError> {
    let mut import = ClusterImport::new(counting);
    import.read(&file.display().to_string(), &state_load::read_text(file)?)?;
    if let Some(refused) = import.rejected().first() {
        let (object, error) = (&refused.object, &refused.error);
        return Err(CommandError::message(format!(
            "error: {}: {object}: {error}",
            file.display()
        )));
    }
    let cluster = import.into_cluster();
    if cluster.tasks.is_empty() {
        return Err(CommandError::message(format!(
            "error: {}: no pod in this file",
            file.display()
        )));
    }
    if let Some((first, other)) = two_jobs(&cluster.tasks) {
        return Err(CommandError::message(format!(
            "error: {}: it has pods of {first} and of {other}\nhint: one is explained at a time: give the pods of one job",
            file.display()
        )));
    }
    Ok(ExplainTarget::File {
        tasks: cluster.tasks,
        jobs: cluster.jobs,
    })
}

/// Two jobs whose tasks stand side by side, if there are several.
fn two_jobs(tasks: &[pb::Task]) -> Option<(String, String)> {
    let first = tasks.first()?;
    let other = tasks.iter().find(|task| task.job != first.job)?;
    let name = |task: &pb::Task| match task.job.as_str() {
        "" => "no job".to_owned(),
        job => format!("job {job}"),
    };
    Some((name(first), name(other)))
}
