//! `pumice score`: where should a task run?

use clap::Args;

use super::connect::Connection;
use super::decide::{self, QuestionArgs};
use super::output::{self, Table};
use super::{Client, Failure, Format};
use crate::server::pb;

/// Arguments of `pumice score`.
#[derive(Debug, Args)]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    question: QuestionArgs,
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
pub(super) async fn run(args: ScoreArgs) -> Result<(), Failure> {
    let tasks = args.question.tasks()?;
    let request = pb::ScoreRequest {
        ground: Some(args.question.ground()),
        tasks: tasks.clone(),
        candidates: args.question.candidates(),
        plugins: args.question.plugins.clone(),
        resource_fit: args.question.resource_fit().into(),
        with_filter: !args.unfiltered,
        limit: (args.limit > 0).then_some(args.limit),
        with_parts: args.parts,
        filter_detail: pb::FilterDetail::Samples.into(),
        ..pb::ScoreRequest::default()
    };
    let mut connection = Connection::open(&args.client.server).await?;
    let reply = connection.decisions.score(request).await?.into_inner();
    if args.client.output == Format::Json {
        output::json("ScoreResponse", &reply)?;
    }
    let mut outcome = Ok(());
    for (task, item) in tasks.iter().zip(reply.answer.unwrap_or_default().items) {
        let title = decide::title(task);
        match decide::check_item(&title, item.problem.as_ref(), &item.warnings) {
            Ok(()) if args.client.output == Format::Table => show(&title, &item, args.limit > 0)?,
            Ok(()) => {}
            Err(failure) => outcome = Err(failure),
        }
    }
    outcome
}

/// The scores of one task, in the order of the answer.
pub(super) fn table(item: &pb::ScoreItem) -> Table {
    let mut head = vec!["NODE".to_owned(), "SCORE".to_owned()];
    head.extend(item.parts.iter().map(|part| match part.part.as_str() {
        "" => part.plugin.clone(),
        name => format!("{}/{name}", part.plugin),
    }));
    let mut table = Table::new(head);
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

fn show(title: &str, item: &pb::ScoreItem, ranked: bool) -> Result<(), Failure> {
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
    output::table(&table(item))?;
    match item.filter.as_ref().and_then(decide::rejections) {
        Some(rejections) => output::table(&rejections),
        None => Ok(()),
    }
}
