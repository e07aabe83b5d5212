//! `pumice explain`: why does my job wait?

mod ask;
pub(super) mod classes;
mod focus;
mod gather;
mod report;
mod rooms;
mod show;
mod trial;
mod verdict;
mod words;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::connect::Connection;
use super::policy_args::PolicyArgs;
use super::{Client, Failure, Format, output, state_load};
use crate::import::{Counting, Import};
use crate::server::pb;
use ask::Asker;
use focus::Wanted;

/// What is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
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
    kind: Option<Kind>,
    /// Its name, namespace/name; the namespace may be left out where there is only one of that name
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Explain the pods of a file, as if they waited, instead
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "name"])]
    file: Option<PathBuf>,
    /// How the amounts of pods in a file are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    /// Best nodes that are shown
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    top: u32,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    client: Client,
}

/// Runs it.
pub(super) async fn run(args: ExplainArgs) -> Result<(), Failure> {
    let wanted = match (&args.file, args.kind, args.name) {
        (Some(file), ..) => from_file(file, args.derivation)?,
        (None, Some(Kind::Task), Some(name)) => Wanted::Task(name),
        (None, _, name) => Wanted::Job(name.unwrap_or_default()),
    };
    let connection = Connection::open(&args.client.server).await?;
    let mut asker = Asker::open(connection, args.policy.world()).await?;
    let report = gather::report(&mut asker, wanted, args.top).await;
    asker.close().await;
    let report = report?;
    match args.client.output {
        Format::Table => show::show(&report),
        Format::Json => {
            let text = serde_json::to_string_pretty(&report);
            output::line(&text.map_err(|error| Failure::said(format!("error: as JSON: {error}")))?)
        }
    }
}

fn from_file(file: &std::path::Path, counting: Counting) -> Result<Wanted, Failure> {
    let mut import = Import::new(counting);
    import.read(&file.display().to_string(), &state_load::text(file)?)?;
    if let Some(refused) = import.refused().first() {
        let (object, error) = (&refused.object, &refused.error);
        return Err(Failure::said(format!("error: {}: {object}: {error}", file.display())));
    }
    let cluster = import.into_cluster();
    if cluster.tasks.is_empty() {
        return Err(Failure::said(format!("error: {}: no pod in this file", file.display())));
    }
    if let Some((first, other)) = two_jobs(&cluster.tasks) {
        return Err(Failure::said(format!(
            "error: {}: it has pods of {first} and of {other}\nhint: one is explained at a time: give the pods of one job",
            file.display()
        )));
    }
    Ok(Wanted::File {
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
