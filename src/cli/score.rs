//! `pumice score`: where should a task run?

use clap::Args;

use super::connect::ClientConnection;
use super::node_query::{self, QueryArgs};
use super::not_evaluated::{self, UnevaluatedSet};
use super::output::{self, TextTable};
use super::{ClientArgs, CommandError, OutputFormat};
use crate::server::pb;

/// Arguments of `pumice score`.
#[derive(Debug, Args)]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    query: QueryArgs,
    /// Only the best so many nodes; 0: all
    #[arg(long, default_value_t = 10)]
    limit: u32,
    /// Also the parts of each score
    #[arg(long)]
    parts: bool,
    /// Also nodes that Filter refuses
    #[arg(long)]
    unfiltered: bool,
}

/// Runs it.
pub(super) async fn run(args: ScoreArgs) -> Result<(), CommandError> {
    let tasks = args.query.tasks()?;
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
    let mut connection = ClientConnection::open(&args.client.server).await?;
    let reply = connection.decisions.score(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        output::json("ScoreResponse", &reply)?;
    }
    let mut outcome = Ok(());
    let mut unevaluated = UnevaluatedSet::default();
    unevaluated.add_metadata(reply.metadata.as_ref());
    for (task, item) in tasks.iter().zip(reply.result.unwrap_or_default().items) {
        let title = node_query::task_title(task);
        unevaluated.add(&item.not_evaluated, 1);
        match node_query::check_item(&title, item.problem.as_ref(), &item.warnings) {
            Ok(()) if args.client.output == OutputFormat::Table => show(&title, &item, args.limit > 0)?,
            Ok(()) => {}
            Err(failure) => outcome = Err(failure),
        }
    }
    if args.client.output == OutputFormat::Table {
        not_evaluated::print(&unevaluated.rows())?;
    }
    outcome
}

/// The scores of one task, in the order of the answer.
pub(super) fn score_table(item: &pb::ScoreItem) -> TextTable {
    let mut head = vec!["NODE".to_owned(), "SCORE".to_owned()];
    head.extend(item.parts.iter().map(|part| match part.part.as_str() {
        "" => part.plugin.clone(),
        name => format!("{}/{name}", part.plugin),
    }));
    let mut table = TextTable::new(head);
    let names = item.nodes.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    for (at, name) in names.iter().enumerate() {
        let mut row = vec![
            name.clone(),
            item.totals.get(at).copied().map(output::number).unwrap_or_default(),
        ];
        row.extend(
            item.parts
                .iter()
                .map(|part| part.scores.get(at).copied().map(output::number).unwrap_or_default()),
        );
        table.row(row);
    }
    table
}

fn show(title: &str, item: &pb::ScoreItem, ranked: bool) -> Result<(), CommandError> {
    let scored = item.nodes.as_ref().map_or(0, |set| set.names.len());
    let passed = item
        .filter
        .as_ref()
        .map(|verdict| format!(" of {} that passed Filter", verdict.fit_count));
    let order = if ranked { "best first" } else { "by name" };
    output::line(&format!(
        "{title}: {}{}, {order}",
        output::count(scored, "node"),
        passed.unwrap_or_default()
    ))?;
    output::table(&score_table(item))?;
    match item.filter.as_ref().and_then(node_query::rejection_table) {
        Some(rejections) => output::table(&rejections),
        None => Ok(()),
    }
}
