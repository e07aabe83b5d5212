//! `pumice place`: where would a whole job go?

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::connect::ClientConnection;
use super::not_evaluated::{self, UnevaluatedSet};
use super::output::{self, TextTable};
use super::policy_args::PolicyArgs;
use super::{ClientArgs, CommandError, OutputFormat, node_query, state_load, task};
use crate::import::{AmountRules, ClusterImport};
use crate::server::pb;

/// Arguments of `pumice place`.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    /// A file with the pods of one job, and the job itself if it is not stored, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// How the amounts of pods are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::amount_rules_parser())]
    derivation: AmountRules,
    /// So many of each pod
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    count: u32,
    /// Fewer than this: none. Without it the job's own minimum, or all
    #[arg(long, value_name = "COUNT")]
    min_available: Option<u32>,
    /// Promise nothing on room that is being released
    #[arg(long)]
    idle_only: bool,
    /// Use these nodes only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Do not use these nodes
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    exclude: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(super) async fn run(args: PlaceArgs) -> Result<(), CommandError> {
    let (job, groups) = read(&args)?;
    let set = |names: &[String]| pb::NodeSet {
        names: names.to_vec(),
        ..pb::NodeSet::default()
    };
    let request = pb::PlaceRequest {
        against: Some(args.policy.evaluation_ref()),
        job,
        groups: groups.clone(),
        min_available: args.min_available,
        candidates: (!args.nodes.is_empty()).then(|| set(&args.nodes)),
        exclusions: Some(set(&args.exclude)),
        idle_only: args.idle_only,
        ..pb::PlaceRequest::default()
    };
    let mut connection = ClientConnection::open(&args.client.server).await?;
    let reply = connection.decisions.place(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json("PlaceResponse", &reply)?;
    }
    let mut unevaluated = UnevaluatedSet::default();
    unevaluated.add_metadata(reply.metadata.as_ref());
    let result = reply.result.unwrap_or_default();
    for (group, placed) in groups.iter().zip(&result.groups) {
        let title = node_query::task_title(&group.task.clone().unwrap_or_default());
        node_query::check_item(&title, placed.problem.as_ref(), &placed.warnings)?;
        unevaluated.add(&placed.not_evaluated, 1);
    }
    if args.client.output == OutputFormat::Table {
        show(&groups, &result)?;
        not_evaluated::print(&unevaluated.rows())?;
    }
    if result.placed {
        return Ok(());
    }
    Err(CommandError::message(format!(
        "refused: {} found a place, {} are needed",
        output::count(result.placed_count as usize, "task"),
        result.min_count
    )))
}

/// The job of a file, if it stands there, and its pods, equal ones together.
fn read(args: &PlaceArgs) -> Result<(Option<pb::Job>, Vec<pb::TaskGroup>), CommandError> {
    let (file, name) = (&args.file, args.file.display());
    let mut import = ClusterImport::new(args.derivation);
    import.read(&name.to_string(), &state_load::read_text(file)?)?;
    if let Some(refused) = import.rejected().first() {
        let message = format!("error: {name}: {}: {}", refused.object, refused.error);
        return Err(CommandError::message(message));
    }
    let pb::Cluster { jobs, tasks, .. } = import.into_cluster();
    if tasks.is_empty() {
        return Err(CommandError::message(format!("error: {name}: no pod in this file")));
    }
    if let Some(task) = tasks.iter().find(|task| task.job.is_empty()) {
        let message = format!("error: {name}: {}: the pod names no PodGroup", task.name);
        return Err(CommandError::message(message));
    }
    let of: Vec<&String> = tasks.iter().map(|task| &task.job).collect();
    if let Some(pair) = of.windows(2).find(|pair| pair.first() != pair.last()) {
        let message = format!("error: {name}: pods of several jobs ({pair:?}); one job is placed at a time");
        return Err(CommandError::message(message));
    }
    let job = jobs
        .into_iter()
        .find(|job| of.first().is_some_and(|name| **name == job.name));
    Ok((job, task::task_groups(tasks, args.count)))
}

fn show(groups: &[pb::TaskGroup], result: &pb::PlaceResult) -> Result<(), CommandError> {
    let wanted: u32 = groups.iter().map(|group| group.count.unwrap_or(1)).sum();
    output::line(&format!(
        "{} of {} found a place, {} needed",
        result.placed_count,
        output::count(wanted as usize, "task"),
        result.min_count
    ))?;
    let mut table = TextTable::new(["TASKS", "LIKE", "NODE", "ROOM", "CARD"]);
    for (group, placed) in groups.iter().zip(&result.groups) {
        let like = node_query::task_title(&group.task.clone().unwrap_or_default());
        let names = |set: &Option<pb::NodeSet>| set.clone().unwrap_or_default().names;
        let idle = names(&placed.allocated).into_iter().map(|node| (node, "idle"));
        let nodes = idle.chain(
            names(&placed.pipelined)
                .into_iter()
                .map(|node| (node, "being released")),
        );
        let mut counts: BTreeMap<(String, &str, String), u32> = BTreeMap::new();
        for (at, (node, room)) in nodes.enumerate() {
            let card = placed.cards.get(at).cloned().unwrap_or_default();
            *counts.entry((node, room, card)).or_default() += 1;
        }
        for ((node, room, card), count) in counts {
            table.row([count.to_string(), like.clone(), node, room.to_owned(), card]);
        }
    }
    if result.placed_count > 0 {
        output::table(&table)?;
    }
    match node_query::blocker_table(&result.blockers) {
        Some(table) => output::table(&table),
        None => Ok(()),
    }
}
