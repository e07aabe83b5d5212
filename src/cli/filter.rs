//! `pumice filter`: where may a task run?

use clap::Args;

use super::connect::ClientConnection;
use super::node_query::{self, QueryArgs};
use super::not_evaluated::{self, UnevaluatedSet};
use super::{ClientArgs, CommandError, OutputFormat, output};
use crate::server::pb;

/// Nodes that are named before the rest is only counted.
const NODES_SHOWN: usize = 20;

/// Arguments of `pumice filter`.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    query: QueryArgs,
    /// Refused nodes shown with their figures, per reason
    #[arg(long, default_value_t = 3)]
    samples: u32,
    /// Name all nodes that passed, however many
    #[arg(long)]
    all: bool,
}

/// Runs it.
pub(super) async fn run(args: FilterArgs) -> Result<(), CommandError> {
    let tasks = args.query.tasks()?;
    let request = pb::FilterRequest {
        against: Some(args.query.evaluation_ref()),
        tasks: tasks.clone(),
        candidates: args.query.candidates(),
        plugins: args.query.plugins.clone(),
        resource_fit: args.query.resource_fit().into(),
        samples: Some(args.samples),
        ..pb::FilterRequest::default()
    };
    let mut connection = ClientConnection::open(&args.client.server).await?;
    let reply = connection.decisions.filter(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json("FilterResponse", &reply)?;
    }
    let mut outcome = Ok(());
    let mut unevaluated = UnevaluatedSet::default();
    unevaluated.add_metadata(reply.metadata.as_ref());
    for (task, item) in tasks.iter().zip(reply.result.unwrap_or_default().items) {
        let title = node_query::task_title(task);
        unevaluated.add(&item.not_evaluated, 1);
        match node_query::check_item(&title, item.problem.as_ref(), &item.warnings) {
            Ok(()) if args.client.output == OutputFormat::Table => show(&title, &item, args.all)?,
            Ok(()) => {}
            Err(failure) => outcome = Err(failure),
        }
    }
    if args.client.output == OutputFormat::Table {
        not_evaluated::print(&unevaluated.rows())?;
    }
    outcome
}

fn show(title: &str, item: &pb::FilterItem, all: bool) -> Result<(), CommandError> {
    let names = item.fit.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    let refused: u32 = item.rejections.iter().map(|rejection| rejection.count).sum();
    output::line(&format!(
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
        output::line(&format!("passed: {passed}{rest}"))?;
    }
    match node_query::rejection_table(item) {
        Some(table) => output::table(&table),
        None => Ok(()),
    }
}
