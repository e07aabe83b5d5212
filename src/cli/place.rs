//! `pumice place`: previews the placement of a whole job, and prints what blocks it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use super::local_services::ProgramServices;
use pumice_console::constraint_args::ConstraintArgs;
use pumice_console::not_evaluated::{self, UnevaluatedSet};
use pumice_console::output::{self, TextTable};
use pumice_console::policy_args::PolicyArgs;
use pumice_console::what_if::WhatIfArgs;
use pumice_console::{
    ClientArgs, CommandError, OutputFormat, args, import_files, listings, node_query, remedies, task, unknown_name,
};
use pumice_diagnosis::capacity::shape::GangShape;
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Name of the job of a shape.
const SHAPE_JOB: &str = "pumice/shape";

/// Arguments of `pumice place`.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    /// File with the pods of one job (YAML or JSON); must contain the job if the server does not have it
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "shape",
        conflicts_with_all = ["selector", "affinity", "toleration", "host_port"]
    )]
    file: Option<PathBuf>,
    /// Shape instead of a file: a number of equal pods and the request of each pod, such as "8 x 1 gpu + 4 cpu"; `gpu`
    /// is short for nvidia.com/gpu
    #[arg(long, value_name = "SHAPE", conflicts_with = "file")]
    shape: Option<String>,
    /// Queue of the shape's job, such as research; without it no quota applies
    #[arg(long, value_name = "NAME", requires = "shape")]
    queue: Option<String>,
    /// Cards that the shape's pods accept, such as A100 or A100|H100
    #[arg(long, value_name = "NAME", requires = "shape")]
    card: Option<String>,
    #[command(flatten)]
    constraints: ConstraintArgs,
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Number of tasks to place for each pod
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    count: u32,
    /// Minimum number of tasks to place; if fewer fit, none is placed [default: the job's minimum, or all tasks]
    #[arg(long, value_name = "COUNT")]
    min_available: Option<u32>,
    /// Use idle resources only; without it, resources that are being released are also used
    #[arg(long)]
    idle_only: bool,
    /// Use only this node; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Do not use this node; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    exclude: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command. A job that is not placed: exit code 1.
pub(super) async fn run(args: PlaceArgs) -> Result<(), CommandError> {
    let mut imported = None;
    let (job, groups) = match (&args.shape, &args.file) {
        (Some(text), _) => {
            let shape = GangShape::parse(text)?.constrained(args.constraints.constraints());
            let job = args.queue.as_ref().map(|queue| shape.job(SHAPE_JOB, queue));
            let count = shape.pods.saturating_mul(args.count);
            (job, vec![shape.group(count, args.card.as_deref())])
        }
        (None, Some(file)) => {
            let read = imported.insert(import_files::read_for_query(
                std::slice::from_ref(file),
                args.client.amount_rules(args.derivation).await?,
                &ProgramServices,
            )?);
            gang_of(&args, file, std::mem::take(&mut read.cluster))?
        }
        (None, None) => return Err(CommandError::Usage("error: give --file or --shape".to_owned())),
    };
    let set = |names: &[String]| pb::NodeSet {
        names: names.to_vec(),
        ..pb::NodeSet::default()
    };
    let mut request = pb::PlaceRequest {
        against: Some(args.policy.evaluation_ref()),
        job,
        groups: groups.clone(),
        min_available: args.min_available,
        candidates: (!args.nodes.is_empty()).then(|| set(&args.nodes)),
        exclusions: Some(set(&args.exclude)),
        idle_only: args.idle_only,
        ..pb::PlaceRequest::default()
    };
    let mut target = args
        .what_if
        .connect(&args.client, &args.policy, args.derivation, &ProgramServices)
        .await?;
    if let Some(imported) = imported {
        imported
            .report_unknown(&mut target.connection, &ProgramServices)
            .await?;
    }
    if groups
        .iter()
        .flat_map(|group| &group.task)
        .all(|task| task.job.is_empty())
        && args.shape.is_none()
    {
        request.job = job_in_queue(request.job, &mut target.connection).await?;
    }
    let outcome = query(&args, request, &groups, &mut target.connection).await;
    unknown_name::suggest(&mut target.connection, outcome).await
}

async fn query(
    args: &PlaceArgs,
    request: pb::PlaceRequest,
    groups: &[pb::TaskGroup],
    connection: &mut ClientConnection,
) -> Result<(), CommandError> {
    let reply = connection.decisions.place(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json(&reply)?;
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
        show(groups, &result)?;
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

/// Job that Volcano makes of a pod, if the server has its queue. Without it no quota applies, as under a policy of kube-scheduler.
async fn job_in_queue(
    job: Option<pb::Job>,
    connection: &mut ClientConnection,
) -> Result<Option<pb::Job>, CommandError> {
    let Some(job) = job else { return Ok(None) };
    let queues = listings::rows(connection, pb::ListQueuesRequest::default()).await?;
    let mut names = queues.iter().filter_map(|status| Some(&status.queue.as_ref()?.name));
    Ok(names.any(|name| *name == job.queue).then_some(job))
}

/// Job of a file, if the file has it, and its pods, equal ones together.
fn gang_of(
    args: &PlaceArgs,
    file: &Path,
    cluster: pb::Cluster,
) -> Result<(Option<pb::Job>, Vec<pb::TaskGroup>), CommandError> {
    let name = file.display();
    let pb::Cluster { jobs, tasks, .. } = cluster;
    if tasks.is_empty() {
        return Err(CommandError::message(format!("error: {name}: no pod in this file")));
    }
    let without_group = tasks.iter().find(|task| task.job.is_empty());
    if let Some(task) = without_group {
        // Volcano makes a PodGroup of each such pod.
        if let [_] = tasks.as_slice() {
            return Ok((Some(task::job_of_one(task)), task::task_groups(tasks, args.count)));
        }
        let message = format!(
            "error: {name}: {}: the pod names no PodGroup, and is a job of its own; one job is placed at a time",
            task.name
        );
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
    let has_devices = result.groups.iter().any(|placed| !placed.devices.is_empty());
    let devices = has_devices.then_some("DEVICES");
    let mut table = TextTable::new(["TASKS", "LIKE", "NODE", "ROOM", "CARD"].into_iter().chain(devices));
    for (group, placed) in groups.iter().zip(&result.groups) {
        let like = node_query::task_title(&group.task.clone().unwrap_or_default());
        let names = |set: &Option<pb::NodeSet>| set.clone().unwrap_or_default().names;
        let idle = names(&placed.allocated).into_iter().map(|node| (node, "idle"));
        let nodes = idle.chain(
            names(&placed.pipelined)
                .into_iter()
                .map(|node| (node, "being released")),
        );
        let mut counts: BTreeMap<(String, &str, String), Vec<String>> = BTreeMap::new();
        for (at, (node, room)) in nodes.enumerate() {
            let card = placed.cards.get(at).cloned().unwrap_or_default();
            let devices = placed.devices.get(at).map(|set| set.numbers.as_slice());
            let numbers: Vec<String> = devices.unwrap_or_default().iter().map(u32::to_string).collect();
            counts.entry((node, room, card)).or_default().push(numbers.join(","));
        }
        for ((node, room, card), devices) in counts {
            let row = [devices.len().to_string(), like.clone(), node, room.to_owned(), card];
            let devices = has_devices.then(|| devices.join(" "));
            table.row(row.into_iter().chain(devices));
        }
    }
    if result.placed_count > 0 {
        output::table(&table)?;
    }
    if let Some(table) = node_query::blocker_table(&result.blockers) {
        output::table(&table)?;
    }
    remedies::print(&result.blockers)
}
