//! `pumice capacity`: how many more of a shape could be admitted and placed, by queue and card, and which cards are
//! stranded.

mod cards;
mod report;
pub mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use pumice_console::constraint_args::ConstraintArgs;
use pumice_console::listings::RecordListing as _;
use pumice_console::not_evaluated::UnevaluatedSet;
use pumice_console::policy_args::PolicyArgs;
use pumice_console::what_if::WhatIfArgs;
use pumice_console::{
    ClientArgs, CommandError, LocalServices, OutputFormat, args, listings, node_query, output, task, unknown_name,
};
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;
use report::{CapacityReport, CapacityRow};
use shape::GangShape;

/// Name of the hypothetical job.
const PROBE_JOB: &str = "pumice/capacity";

/// Arguments of `pumice capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Shape to fit: a number of equal pods and the request of each pod, such as "8 x 1 gpu" or "2 x 4 cpu + 16Gi
    /// memory"; `gpu` is short for nvidia.com/gpu
    #[arg(
        long,
        value_name = "SHAPE",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    shape: Option<String>,
    /// Shape as a file with the equal pods of one job (YAML or JSON)
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["selector", "affinity", "toleration", "host_port"]
    )]
    file: Option<PathBuf>,
    #[command(flatten)]
    constraints: ConstraintArgs,
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Show only this queue, such as research; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    queue: Vec<String>,
    /// Show only this card, such as A100; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    card: Vec<String>,
    /// Number of pods after which the search for more capacity stops
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    limit: u32,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command. Nothing that fits anywhere: exit code 1.
pub async fn run(args: CapacityArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let shape = match (&args.shape, &args.file) {
        (_, Some(file)) => {
            let rules = args.client.amount_rules(args.derivation).await?;
            GangShape::from_pods(task::pods(file, rules)?)?
        }
        (Some(text), None) => GangShape::parse(text)?.constrained(args.constraints.constraints()),
        (None, None) => return Err(CommandError::Usage("error: give --shape or --file".to_owned())),
    };
    let mut target = args
        .what_if
        .connect(&args.client, &args.policy, args.derivation, services)
        .await?;
    let report = query(&args, &shape, &mut target.connection).await;
    let report = unknown_name::suggest(&mut target.connection, report).await?;
    match args.client.output {
        OutputFormat::Table => report.show(),
        OutputFormat::Json => output::report(&report),
    }?;
    if report.fits_any() {
        return Ok(());
    }
    let shape = &report.shape;
    Err(CommandError::message(format!(
        "refused: not one more of {shape} fits now"
    )))
}

async fn query(
    args: &CapacityArgs,
    shape: &GangShape,
    connection: &mut ClientConnection,
) -> Result<CapacityReport, CommandError> {
    let evaluation_ref = args.policy.evaluation_ref();
    let against = Some(evaluation_ref.clone());
    let nodes = listings::rows(connection, pb::ListNodesRequest::new(against.clone(), Vec::new())).await?;
    let queues = listings::rows(connection, pb::ListQueuesRequest::new(against, Vec::new())).await?;
    let mut report = CapacityReport {
        shape: shape.description(),
        pods: shape.pods,
        rows: Vec::new(),
        cards: cards::by_card(&nodes, shape, &args.card),
        not_evaluated: Vec::new(),
    };
    let names: Vec<String> = queues.into_iter().filter_map(|queue| Some(queue.queue?.name)).collect();
    if let Some(none) = args.queue.iter().find(|queue| !names.contains(queue)) {
        return Err(CommandError::message(format!("error: there is no queue `{none}`")));
    }
    let asked = names
        .iter()
        .filter(|name| args.queue.is_empty() || args.queue.contains(name));
    // Without queues: the nodes alone.
    let asked: Vec<Option<&String>> = if names.is_empty() {
        vec![None]
    } else {
        asked.map(Some).collect()
    };
    let mut unevaluated = UnevaluatedSet::default();
    let cards = cards_to_query(shape, &nodes, &args.card)?;
    for queue in asked {
        for card in &cards {
            let request = place_request(args, shape, &evaluation_ref, queue, card.as_deref());
            let reply = connection.decisions.place(request).await?.into_inner();
            unevaluated.add_metadata(reply.metadata.as_ref());
            let result = reply.result.unwrap_or_default();
            for group in &result.groups {
                unevaluated.add_shape(&group.not_evaluated);
            }
            let row = capacity_row(shape, queue, card.as_deref(), &result, args.limit)?;
            report.rows.push(row);
        }
    }
    report.not_evaluated = unevaluated.rows();
    Ok(report)
}

/// Cards to ask about one by one. `None`: the pods name their cards, or request none.
fn cards_to_query(
    shape: &GangShape,
    nodes: &[pb::NodeStatus],
    wanted: &[String],
) -> Result<Vec<Option<String>>, CommandError> {
    let found = nodes.iter().flat_map(|node| &node.cards);
    let fitting = found.filter(|card| shape.requests_resource(&card.resource));
    let fitting: BTreeSet<&String> = fitting.map(|card| &card.card).collect();
    if let Some(none) = wanted.iter().find(|card| !fitting.contains(card)) {
        let names: Vec<String> = fitting.iter().map(|card| (*card).clone()).collect();
        let hint = match (unknown_name::nearest(none, &names), names.is_empty()) {
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            (None, true) => "the shape requests no resource of a card".to_owned(),
            (None, false) => format!("there are: {}", names.join(", ")),
        };
        let message = format!("error: no node has a card `{none}` that this shape requests\nhint: {hint}");
        return Err(CommandError::message(message));
    }
    let cards = fitting
        .into_iter()
        .filter(|card| wanted.is_empty() || wanted.contains(card));
    let cards: Vec<Option<String>> = cards.cloned().map(Some).collect();
    if shape.card().is_some() || cards.is_empty() {
        return Ok(vec![None]);
    }
    Ok(cards)
}

fn place_request(
    args: &CapacityArgs,
    shape: &GangShape,
    evaluation_ref: &pb::EvaluationRef,
    queue: Option<&String>,
    card: Option<&str>,
) -> pb::PlaceRequest {
    pb::PlaceRequest {
        against: Some(evaluation_ref.clone()),
        job: queue.map(|queue| shape.job(PROBE_JOB, queue)),
        groups: vec![shape.group(args.limit.max(shape.pods), card)],
        min_available: Some(shape.pods),
        idle_only: true,
        ..pb::PlaceRequest::default()
    }
}

fn capacity_row(
    shape: &GangShape,
    queue: Option<&String>,
    card: Option<&str>,
    result: &pb::PlaceResult,
    limit: u32,
) -> Result<CapacityRow, CommandError> {
    let group = result.groups.first().cloned().unwrap_or_default();
    node_query::check_item("the shape", group.problem.as_ref(), &group.warnings)?;
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for node in group.allocated.unwrap_or_default().names {
        *nodes.entry(node).or_default() += 1;
    }
    let whole = result.placed_count / shape.pods.max(1);
    Ok(CapacityRow {
        queue: queue.cloned().unwrap_or_default(),
        card: card.map(ToOwned::to_owned).or_else(|| shape.card()).unwrap_or_default(),
        shapes: whole,
        pods: result.placed_count,
        limit_reached: result.placed_count >= limit.max(shape.pods),
        nodes,
        blockers: group.blockers,
    })
}
