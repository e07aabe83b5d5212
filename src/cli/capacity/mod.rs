//! `pumice capacity`: how many more of a shape could be admitted and placed, by queue and card; and which cards are
//! stranded.

mod cards;
mod report;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use super::connect::Connection;
use super::policy_args::PolicyArgs;
use super::{Client, Failure, Format, decide, pages, state_load, task};
use crate::import::Counting;
use crate::server::pb;
use report::{Report, Row};
use shape::Shape;

/// Names the job that is imagined.
const JOB: &str = "pumice/capacity";
/// The annotation that says which cards would do.
const CARD: &str = "volcano.sh/card.name";

/// Arguments of `pumice capacity`.
#[derive(Debug, Args)]
pub(super) struct CapacityArgs {
    /// What is to fit: pods times what each asks for, such as "8 x 1 gpu" or "2 x 4 cpu + 16Gi memory + 1 nvidia.com/gpu"
    #[arg(
        long,
        value_name = "SHAPE",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    shape: Option<String>,
    /// The same as a file with the pods of one such job, all equal, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How the amounts of pods in a file are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    /// These queues only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    queue: Vec<String>,
    /// These cards only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    card: Vec<String>,
    /// Stop counting at so many pods
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    limit: u32,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    client: Client,
}

/// Reads all pages of a listing.
macro_rules! list {
    ($connection:expr, $ground:expr, $call:ident, $request:ident, $records:ident) => {
        pages::all(async |token| {
            let request = pb::$request {
                ground: Some($ground.clone()),
                page: Some(pages::large(token)),
                ..pb::$request::default()
            };
            let page = $connection.state.$call(request).await?.into_inner();
            Ok((page.$records, page.next_page_token))
        })
        .await?
    };
}

/// Runs it.
pub(super) async fn run(args: CapacityArgs) -> Result<(), Failure> {
    let shape = match (&args.shape, &args.file) {
        (_, Some(file)) => Shape::of_pods(task::pods(file, args.derivation)?)?,
        (Some(text), None) => Shape::read(text)?,
        (None, None) => return Err(Failure::Usage("error: say --shape or --file".to_owned())),
    };
    let ground = args.policy.ground();
    let mut connection = Connection::open(&args.client.server).await?;
    let nodes: Vec<pb::NodeStatus> = list!(connection, ground, list_nodes, ListNodesRequest, nodes);
    let queues: Vec<pb::QueueStatus> = list!(connection, ground, list_queues, ListQueuesRequest, queues);
    let mut report = Report {
        shape: shape.words(),
        pods: shape.pods,
        rows: Vec::new(),
        cards: cards::by_card(&nodes, &shape, &args.card),
    };
    let names: Vec<String> = queues.into_iter().filter_map(|queue| Some(queue.queue?.name)).collect();
    if let Some(none) = args.queue.iter().find(|queue| !names.contains(queue)) {
        return Err(Failure::said(format!("error: there is no queue `{none}`")));
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
    let cards = cards_of(&shape, &nodes, &args.card)?;
    for queue in asked {
        for card in &cards {
            let request = question(&args, &shape, &ground, queue, card.as_deref());
            let reply = connection.decisions.place(request).await?.into_inner();
            let row = row(
                &shape,
                queue,
                card.as_deref(),
                &reply.answer.unwrap_or_default(),
                args.limit,
            )?;
            report.rows.push(row);
        }
    }
    match args.client.output {
        Format::Table => report.show(),
        Format::Json => report.json(),
    }
}

/// The cards to ask about one by one; none: the shape says by itself which would do, or asks for none.
fn cards_of(shape: &Shape, nodes: &[pb::NodeStatus], wanted: &[String]) -> Result<Vec<Option<String>>, Failure> {
    let found = nodes.iter().flat_map(|node| &node.cards);
    let fitting = found.filter(|card| shape.asks_for(&card.resource));
    let fitting: BTreeSet<&String> = fitting.map(|card| &card.card).collect();
    if let Some(none) = wanted.iter().find(|card| !fitting.contains(card)) {
        let message = format!("error: no node has a card `{none}` that this shape asks for");
        return Err(Failure::said(message));
    }
    let cards = fitting
        .into_iter()
        .filter(|card| wanted.is_empty() || wanted.contains(card));
    let cards: Vec<Option<String>> = cards.cloned().map(Some).collect();
    if shape.names_cards() || cards.is_empty() {
        return Ok(vec![None]);
    }
    Ok(cards)
}

fn question(
    args: &CapacityArgs,
    shape: &Shape,
    ground: &pb::Ground,
    queue: Option<&String>,
    card: Option<&str>,
) -> pb::PlaceRequest {
    let mut pod = shape.pod.clone();
    if let Some(card) = card {
        pod.annotations.insert(CARD.to_owned(), card.to_owned());
    }
    let job = queue.map(|queue| pb::Job {
        name: JOB.to_owned(),
        queue: queue.clone(),
        min_member: i32::try_from(shape.pods).unwrap_or(i32::MAX),
        phase: pb::JobPhase::Inqueue.into(),
        ..pb::Job::default()
    });
    let group = pb::TaskGroup {
        task: Some(pod),
        count: Some(args.limit.max(shape.pods)),
        ..pb::TaskGroup::default()
    };
    pb::PlaceRequest {
        ground: Some(ground.clone()),
        job,
        groups: vec![group],
        min_available: Some(shape.pods),
        idle_only: true,
        ..pb::PlaceRequest::default()
    }
}

fn row(
    shape: &Shape,
    queue: Option<&String>,
    card: Option<&str>,
    answer: &pb::PlaceAnswer,
    limit: u32,
) -> Result<Row, Failure> {
    let group = answer.groups.first().cloned().unwrap_or_default();
    decide::check_item("the shape", group.problem.as_ref(), &group.warnings)?;
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for node in group.allocated.unwrap_or_default().names {
        *nodes.entry(node).or_default() += 1;
    }
    let whole = answer.found / shape.pods.max(1);
    Ok(Row {
        queue: queue.cloned().unwrap_or_default(),
        card: card.map(ToOwned::to_owned).or_else(|| shape.card()).unwrap_or_default(),
        fits: whole,
        pods: answer.found,
        at_least: answer.found >= limit.max(shape.pods),
        nodes,
        blockers: group.blockers,
    })
}
