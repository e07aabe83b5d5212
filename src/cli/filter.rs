//! `pumice filter`: where may a task run?

use clap::Args;

use super::connect::Connection;
use super::decide::{self, QuestionArgs};
use super::{Client, Failure, Format, output};
use crate::server::pb;

/// Nodes that are named before the rest is only counted.
const SHOWN: usize = 20;

/// Arguments of `pumice filter`.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    question: QuestionArgs,
    /// Refused nodes shown with their figures, per reason
    #[arg(long, default_value_t = 3)]
    samples: u32,
    /// Name all nodes that passed, however many
    #[arg(long)]
    all: bool,
}

/// Runs it.
pub(super) async fn run(args: FilterArgs) -> Result<(), Failure> {
    let tasks = args.question.tasks()?;
    let request = pb::FilterRequest {
        ground: Some(args.question.ground()),
        tasks: tasks.clone(),
        candidates: args.question.candidates(),
        plugins: args.question.plugins.clone(),
        resource_fit: args.question.resource_fit().into(),
        samples: Some(args.samples),
        ..pb::FilterRequest::default()
    };
    let mut connection = Connection::open(&args.client.server).await?;
    let reply = connection.decisions.filter(request).await?.into_inner();
    if args.client.output == Format::Json {
        output::json("FilterResponse", &reply)?;
    }
    let mut outcome = Ok(());
    for (task, item) in tasks.iter().zip(reply.answer.unwrap_or_default().items) {
        let title = decide::title(task);
        match decide::check_item(&title, item.problem.as_ref(), &item.warnings) {
            Ok(()) if args.client.output == Format::Table => show(&title, &item, args.all)?,
            Ok(()) => {}
            Err(failure) => outcome = Err(failure),
        }
    }
    outcome
}

fn show(title: &str, item: &pb::FilterItem, all: bool) -> Result<(), Failure> {
    let names = item.fit.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    let refused: u32 = item.rejections.iter().map(|rejection| rejection.count).sum();
    output::line(&format!(
        "{title}: {} of {} nodes passed",
        item.fit_count,
        item.fit_count.saturating_add(refused)
    ))?;
    let shown = if all { names.len() } else { SHOWN };
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
    match decide::rejections(item) {
        Some(table) => output::table(&table),
        None => Ok(()),
    }
}
