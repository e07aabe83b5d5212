//! `pumice score`: nodes that a task should run on, best first.

use clap::Args;

use super::local_services::ProgramServices;
use pumice_console::node_query::{self, QueryArgs};
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
    let reply = target
        .connection
        .decisions
        .score(request)
        .await
        .map_err(CommandError::from);
    let reply = unknown_name::suggest(&mut target.connection, reply).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json(&reply)?;
    }
    let items = tasks.iter().zip(reply.result.unwrap_or_default().items);
    let show = |title: &str, item: &pb::ScoreItem| show(title, item, args.limit > 0);
    node_query::show_items(
        &mut target.connection,
        args.client.output,
        reply.metadata.as_ref(),
        items,
        show,
    )
    .await
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
    let Some(filter) = &item.filter else { return Ok(()) };
    if let Some(table) = node_query::blocker_table(&filter.rejections) {
        output::table(&table)?;
    }
    if scored == 0 {
        remedies::print(&filter.rejections)?;
    }
    Ok(())
}
