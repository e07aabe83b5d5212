//! `pumice score`: nodes that a task should run on, best first.

use clap::Args;

use super::node_query::{self, QueryArgs};
use super::not_evaluated::{self, UnevaluatedSet};
use super::output::{self, TextTable};
use super::{ClientArgs, CommandError, OutputFormat, remedies, unknown_name};
use pumice_protocol::v1 as pb;

/// Number of nodes with equal scores that are named; the others are counted.
const NODES_NAMED: usize = 4;

/// Arguments of `pumice score`.
#[derive(Debug, Args)]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    query: QueryArgs,
    /// Number of best nodes to show; 0: all
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
    let mut target = args.query.connect(&args.client).await?;
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

/// Scores of one task, in the order of the result. Neighbours with equal scores share a row.
pub(super) fn score_table(item: &pb::ScoreItem) -> TextTable {
    let mut head = vec!["NODE".to_owned(), "SCORE".to_owned()];
    head.extend(item.parts.iter().map(|part| match part.part.as_str() {
        "" => part.plugin.clone(),
        name => format!("{}/{name}", part.plugin),
    }));
    let names = item.nodes.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    let mut rows: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let totals = std::iter::once(item.totals.get(at));
        let scores = totals.chain(item.parts.iter().map(|part| part.scores.get(at)));
        let scores: Vec<String> = scores
            .map(|score| score.copied().map(output::number).unwrap_or_default())
            .collect();
        match rows.last_mut() {
            Some((names, last)) if *last == scores => names.push(name),
            Some(_) | None => rows.push((vec![name], scores)),
        }
    }
    let mut table = TextTable::new(head);
    for (names, scores) in rows {
        table.row(std::iter::once(node_names(&names)).chain(scores));
    }
    table
}

/// Names of nodes with equal scores: all of a few, else the first ones and the number of the others.
fn node_names(names: &[&str]) -> String {
    if names.len() <= NODES_NAMED {
        return names.join(", ");
    }
    let more = names.len().saturating_sub(NODES_NAMED);
    let first: Vec<&str> = names.iter().take(NODES_NAMED).copied().collect();
    format!("{} and {more} more", first.join(", "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_equal_scores_share_a_row() {
        let names: Vec<String> = (0..12).map(|at| format!("n-{at:02}")).collect();
        let item = pb::ScoreItem {
            nodes: Some(pb::NodeSet {
                names,
                ..pb::NodeSet::default()
            }),
            totals: [vec![9.0], vec![5.0; 9], vec![1.0; 2]].concat(),
            ..pb::ScoreItem::default()
        };
        let lines = score_table(&item).lines(None);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[2].contains("n-01, n-02, n-03, n-04 and 5 more"), "{lines:#?}");
        assert!(lines[3].contains("n-10, n-11"), "{lines:#?}");
    }
}
