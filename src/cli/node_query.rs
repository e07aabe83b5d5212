//! What questions to Filter and Score have in common, and how their refusals are shown.

use clap::{Args, ValueEnum};

use super::output::{self, TextTable};
use super::policy_args::PolicyArgs;
use super::task::TaskArgs;
use super::{CommandError, state_load};
use crate::import::AmountRules;
use crate::server::pb;

/// Characters of a line of figures.
const SAMPLE_WIDTH: usize = 60;

/// Whether a node must have room for a task, apart from plugins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ResourceFitArg {
    /// Not asked
    None,
    /// In what is idle now
    Idle,
    /// In what is idle once releasing tasks are gone
    #[default]
    FutureIdle,
}

/// A question about tasks and nodes.
#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// How the amounts of pods in a file are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::amount_rules_parser())]
    derivation: AmountRules,
    /// Ask these plugins only, each for itself
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) plugins: Vec<String>,
    /// Whether a node must have room for the task
    #[arg(long, value_enum, default_value_t)]
    resource_fit: ResourceFitArg,
    /// Ask about these nodes only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    nodes: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl QueryArgs {
    pub(super) fn tasks(&self) -> Result<Vec<pb::Task>, CommandError> {
        self.task.tasks(self.derivation)
    }

    pub(super) fn evaluation_ref(&self) -> pb::EvaluationRef {
        self.policy.evaluation_ref()
    }

    pub(super) fn candidates(&self) -> Option<pb::NodeSet> {
        (!self.nodes.is_empty()).then(|| pb::NodeSet {
            names: self.nodes.clone(),
            ..pb::NodeSet::default()
        })
    }

    pub(super) fn resource_fit(&self) -> pb::ResourceFit {
        match self.resource_fit {
            ResourceFitArg::None => pb::ResourceFit::None,
            ResourceFitArg::Idle => pb::ResourceFit::Idle,
            ResourceFitArg::FutureIdle => pb::ResourceFit::FutureIdle,
        }
    }
}

/// What a task is called in an answer.
pub(super) fn task_title(task: &pb::Task) -> String {
    if !task.name.is_empty() {
        return format!("task {}", task.name);
    }
    let items = task.requests.iter().flat_map(|list| &list.items);
    let amounts: Vec<String> = items.map(|(name, amount)| format!("{name}: {amount}")).collect();
    format!("a task of {{{}}}", amounts.join(", "))
}

/// The refused nodes of a verdict, one line per reason, with the figures of some.
pub(super) fn rejection_table(verdict: &pb::FilterItem) -> Option<TextTable> {
    blocker_table(&verdict.rejections)
}

/// A reason that holds something back, in one line.
pub(super) fn blocker_line(blocker: &pb::Rejection) -> String {
    let reason = blocker.reason.clone().unwrap_or_default();
    match blocker.count {
        0 => format!("{}: {}", reason.plugin, reason.message),
        nodes => format!(
            "{}: {} on {}",
            reason.plugin,
            reason.message,
            output::count(nodes as usize, "node")
        ),
    }
}

/// Refusals, one line per reason, with the figures of some nodes.
pub(super) fn blocker_table(rejections: &[pb::Rejection]) -> Option<TextTable> {
    if rejections.is_empty() {
        return None;
    }
    let mut table = TextTable::new(["NODES", "REFUSED BY", "REASON", "EVICTION", "FOR EXAMPLE"]);
    for rejection in rejections {
        let reason = rejection.reason.clone().unwrap_or_default();
        let eviction = match reason.resolution() {
            pb::Resolution::Unspecified => "",
            pb::Resolution::Unschedulable => "may help",
            pb::Resolution::Unresolvable => "cannot help",
        };
        let samples: Vec<String> = rejection.samples.iter().map(sample_lines).collect();
        table.row([
            rejection.count.to_string(),
            format!("{}\n{}", reason.plugin, reason.code),
            reason.message,
            eviction.to_owned(),
            samples.join("\n"),
        ]);
    }
    Some(table)
}

/// A node and its figures, in lines that a terminal holds.
fn sample_lines(node: &pb::RejectedNode) -> String {
    let mut lines = Vec::new();
    let mut line = node.node.clone();
    for measurement in &node.measurements {
        let measurement = output::measurement(measurement);
        if line.len().saturating_add(measurement.len()) > SAMPLE_WIDTH {
            lines.push(std::mem::replace(&mut line, format!("  {measurement}")));
        } else {
            let joint = if line == node.node { ": " } else { ", " };
            line = format!("{line}{joint}{measurement}");
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// Says the warnings of an item on standard error; fails if it is a problem instead of a verdict.
pub(super) fn check_item(
    title: &str,
    problem: Option<&pb::Problem>,
    warnings: &[pb::Problem],
) -> Result<(), CommandError> {
    for warning in warnings {
        output::note(&format!("warning: {title}: {}", output::problem(warning)));
    }
    match problem {
        Some(problem) => Err(CommandError::message(format!(
            "error: {title}: {}",
            output::problem(problem)
        ))),
        None => Ok(()),
    }
}
