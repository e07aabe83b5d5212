//! `pumice explain`: the reason that a job or task waits, with measurements and remedies.

#[cfg(test)]
mod agreement_tests;
mod endless;
mod entitlement;
mod evictions;
mod free_capacity;
mod gang;
mod gather;
mod hint;
#[cfg(test)]
mod impossible_tests;
mod pending;
mod phrases;
mod quota;
mod quota_changes;
#[cfg(test)]
mod remedy_tests;
mod report;
mod show;
mod target;
pub mod task_classes;
#[cfg(test)]
mod test_server;
mod trial;
mod turn;
mod turn_verdict;
mod units;
mod verdict;
mod verdict_parts;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

pub use pending::{PendingVerdict, explain_pending};
use pumice_console::pinned_client::PinnedClient;
use pumice_console::policy_args::PolicyArgs;
use pumice_console::what_if::{QueryTarget, WhatIfArgs};
use pumice_console::{ClientArgs, CommandError, LocalServices, OutputFormat, args, import_files, output, unknown_name};
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::v1 as pb;
use report::ExplainReport;
use target::ExplainTarget;

/// Kind of record that is explained.
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
pub struct ExplainArgs {
    /// Kind of record
    #[arg(value_enum, required_unless_present = "file", requires = "name")]
    kind: Option<ExplainKind>,
    /// Name of the job or task, such as train/bert; the namespace may be omitted if the name is unique
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Instead of a stored job or task: explain the pods of this file as if they were pending
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "name"])]
    file: Option<PathBuf>,
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Number of best nodes to show
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    top: u32,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command. An explanation ends with exit code 0, whether the job waits or not.
pub async fn run(args: ExplainArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let mut imported = None;
    let wanted = match (&args.file, args.kind, &args.name) {
        (Some(file), ..) => {
            let read = imported.insert(import_files::read_for_query(
                std::slice::from_ref(file),
                args.client.amount_rules(args.derivation).await?,
                services,
            )?);
            file_target(file, std::mem::take(&mut read.cluster))?
        }
        (None, Some(ExplainKind::Task), Some(name)) => ExplainTarget::Task(name.clone()),
        (None, _, name) => ExplainTarget::Job(name.clone().unwrap_or_default()),
    };
    let mut target = args
        .what_if
        .connect(&args.client, &args.policy, args.derivation, services)
        .await?;
    if let Some(imported) = imported {
        imported.report_unknown(&mut target.connection, services).await?;
    }
    let report = query(&args, wanted, &target, services.time()).await;
    let report = unknown_name::suggest(&mut target.connection, report).await?;
    match args.client.output {
        OutputFormat::Table => show::show(&report),
        OutputFormat::Json => output::report(&report),
    }
}

async fn query(
    args: &ExplainArgs,
    wanted: ExplainTarget,
    target: &QueryTarget,
    time: Duration,
) -> Result<ExplainReport, CommandError> {
    let mut client = PinnedClient::open(target.connection.clone(), args.policy.latest_ref()).await?;
    client.with.clone_from(&target.with);
    client.set_time(time);
    let report = gather::explain(&mut client, wanted, args.top).await;
    client.close().await;
    report
}

fn file_target(file: &std::path::Path, cluster: pb::Cluster) -> Result<ExplainTarget, CommandError> {
    if cluster.tasks.is_empty() {
        return Err(CommandError::file_error(file, &"no pod in this file"));
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

/// First two jobs of the tasks, if there are several.
fn two_jobs(tasks: &[pb::Task]) -> Option<(String, String)> {
    let first = tasks.first()?;
    let other = tasks.iter().find(|task| task.job != first.job)?;
    let name = |task: &pb::Task| match task.job.as_str() {
        "" => "no job".to_owned(),
        job => format!("job {job}"),
    };
    Some((name(first), name(other)))
}
