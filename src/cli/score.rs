//! `pumice score`: nodes that a task should run on, best first.

use clap::Args;

use super::local_services::ProgramServices;
use pumice_console::node_query::{self, QueryArgs};
use pumice_console::not_evaluated::{self, UnevaluatedSet};
use pumice_console::score_table::score_table;
use pumice_console::{ClientArgs, CommandError, OutputFormat, output, remedies, unknown_name};
use pumice_protocol::v1 as pb;

/// Arguments of `pumice score`.
#[derive(Debug, Args)]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    query: QueryArgs,
    /// Number of nodes to show, best first; 0: all
    #[arg(long, default_value_t = 10)]
    limit: u32,
    /// Also show the parts of each score
    #[arg(long)]
    parts: bool,
    /// Also score nodes that Filter rejects
    #[arg(long)]
    unfiltered: bool,
}

/// Runs the command. A task without a node that passes Filter: exit code 1.
pub(super) async fn run(args: ScoreArgs) -> Result<(), CommandError> {
    let tasks = args.query.tasks(&args.client).await?;
    let request = pb::ScoreRequest {
        against: Some(args.query.evaluation_ref()),
        tasks: tasks.clone(),
        candidates: args.query.candidates(),
        plugins: args.query.plugins.clone(),
        resource_fit: args.query.resource_fit().into(),
        with_filter: !args.unfiltered,
        limit: (args.limit > 0).then_some(args.limit),
        with_parts: args.parts,
        filter_detail: pb::FilterDetail::Samples.into(),
        ..pb::ScoreRequest::default()
    };
    let mut target = args.query.connect(&args.client, &ProgramServices).await?;
    let reply = match target.connection.decisions.score(request).await {
        Ok(reply) => reply.into_inner(),
        Err(status) => return Err(unknown_name::with_suggestion(&mut target.connection, status.into()).await),
    };
    if args.client.output == OutputFormat::Json {
        output::json("ScoreResponse", &reply)?;
    }
    let mut outcome = Ok(());
    let mut without_node = Vec::new();
    let mut unevaluated = UnevaluatedSet::default();
    unevaluated.add_metadata(reply.metadata.as_ref());
    let items = reply.result.unwrap_or_default().items;
    for (tasks, item) in node_query::group_equal(tasks.iter().zip(items)) {
        let title = node_query::tasks_title(&tasks);
        unevaluated.add(&item.not_evaluated, u32::try_from(tasks.len()).unwrap_or(u32::MAX));
        if let Err(failure) = node_query::check_item(&title, item.problem.as_ref(), &item.warnings) {
            outcome = Err(unknown_name::with_suggestion(&mut target.connection, failure).await);
            continue;
        }
        if args.client.output == OutputFormat::Table {
            show(&title, &item, args.limit > 0)?;
        }
        if item.nodes.as_ref().is_none_or(|set| set.names.is_empty()) {
            without_node.push((title, tasks));
        }
    }
    if args.client.output == OutputFormat::Table {
        not_evaluated::print(&unevaluated.rows())?;
    }
    outcome?;
    node_query::require_nodes(&mut target.connection, &without_node).await
}

fn show(title: &str, item: &pb::ScoreItem, ranked: bool) -> Result<(), CommandError> {
    let scored = item.nodes.as_ref().map_or(0, |set| set.names.len());
    let passed = item
        .filter
        .as_ref()
        .map(|verdict| format!(" of {} that passed Filter", verdict.fit_count));
    let order = if ranked { "best first" } else { "by name" };
    output::paragraph(&format!(
        "{title}: {}{}, {order}",
        output::count(scored, "node"),
        passed.unwrap_or_default()
    ))?;
    if scored > 0 {
        output::table(&score_table(item))?;
    }
    if let Some(rejections) = item.filter.as_ref().and_then(node_query::rejection_table) {
        output::table(&rejections)?;
    }
    match &item.filter {
        Some(filter) if scored == 0 => remedies::print(&filter.rejections),
        Some(_) | None => Ok(()),
    }
}
