//! `pumice filter`: nodes that a task may run on.

use clap::Args;

use super::local_services::ProgramServices;
use pumice_console::node_query::{self, QueryArgs};
use pumice_console::{ClientArgs, CommandError, OutputFormat, output, remedies, unknown_name};
use pumice_protocol::v1 as pb;

/// Number of fitting nodes that are listed by name; only the number of further nodes is shown.
const NODES_SHOWN: usize = 20;

/// Arguments of `pumice filter`.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    query: QueryArgs,
    /// Number of rejected nodes to show per reason, with measurements
    #[arg(long, default_value_t = 3)]
    samples: u32,
    /// List all nodes that fit
    #[arg(long)]
    all: bool,
}

/// Runs the command. A task without a node that passes: exit code 1.
pub(super) async fn run(args: FilterArgs) -> Result<(), CommandError> {
    let tasks = args.query.tasks(&args.client).await?;
    let request = pb::FilterRequest {
        against: Some(args.query.evaluation_ref()),
        tasks: tasks.clone(),
        candidates: args.query.candidates(),
        plugins: args.query.plugins.clone(),
        resource_fit: args.query.resource_fit().into(),
        samples: Some(args.samples),
        ..pb::FilterRequest::default()
    };
    let mut target = args.query.connect(&args.client, &ProgramServices).await?;
    let reply = target
        .connection
        .decisions
        .filter(request)
        .await
        .map_err(CommandError::from);
    let reply = unknown_name::suggest(&mut target.connection, reply).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json(&reply)?;
    }
    let items = tasks.iter().zip(reply.result.unwrap_or_default().items);
    let show = |title: &str, item: &pb::FilterItem| show(title, item, args.all);
    node_query::show_items(
        &mut target.connection,
        args.client.output,
        reply.metadata.as_ref(),
        items,
        show,
    )
    .await
}

fn show(title: &str, item: &pb::FilterItem, all: bool) -> Result<(), CommandError> {
    let names = item.fit.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    let refused: u32 = item.rejections.iter().map(|rejection| rejection.count).sum();
    output::paragraph(&format!(
        "{title}: {} of {} nodes passed",
        item.fit_count,
        item.fit_count.saturating_add(refused)
    ))?;
    let shown = if all { names.len() } else { NODES_SHOWN };
    if !names.is_empty() {
        let more = names.len().saturating_sub(shown);
        let passed = names.iter().take(shown).cloned().collect::<Vec<_>>().join(", ");
        let rest = if more > 0 {
            format!(", and {more} more (--all names them)")
        } else {
            String::new()
        };
        output::paragraph(&format!("passed: {passed}{rest}"))?;
    }
    if let Some(table) = node_query::blocker_table(&item.rejections) {
        output::table(&table)?;
    }
    if item.fit_count == 0 {
        remedies::print(&item.rejections)?;
    }
    Ok(())
}
