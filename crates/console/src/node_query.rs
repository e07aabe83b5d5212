//! Arguments that `pumice filter` and `pumice score` share, and tables of rejections.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

use crate::not_evaluated::UnevaluatedSet;
use crate::output::{self, TextTable};
use crate::policy_args::PolicyArgs;
use crate::task::TaskArgs;
use crate::what_if::{QueryTarget, WhatIfArgs};
use crate::{ClientArgs, CommandError, LocalServices, OutputFormat, args, not_evaluated, unknown_name};
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Free capacity to check on nodes, in addition to plugins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ResourceFitArg {
    /// Do not check free capacity
    None,
    /// Resources that are idle now
    Idle,
    /// Resources that are idle after all releasing tasks have ended
    #[default]
    FutureIdle,
}

/// Query about tasks and nodes.
#[derive(Debug, Args)]
pub struct QueryArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Evaluate only these plugins, each alone, such as predicates; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub plugins: Vec<String>,
    /// Free capacity that a node must have for the task, such as idle
    #[arg(long, value_enum, default_value_t)]
    resource_fit: ResourceFitArg,
    /// Consider only this node; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    nodes: Vec<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
}

impl QueryArgs {
    /// Tasks that the query is about.
    pub async fn tasks(&self, client: &ClientArgs) -> Result<Vec<pb::Task>, CommandError> {
        let rules = if self.task.file.is_some() {
            client.amount_rules(self.derivation).await?
        } else {
            self.derivation
        };
        self.task.tasks(rules)
    }

    /// Connects to the target of the query: the server, or a copy of its state with hypothetical records.
    pub async fn connect(
        &self,
        client: &ClientArgs,
        services: &dyn LocalServices,
    ) -> Result<QueryTarget, CommandError> {
        self.what_if
            .connect(client, &self.policy, self.derivation, services)
            .await
    }

    /// State and policy that the query is evaluated against.
    pub fn evaluation_ref(&self) -> pb::EvaluationRef {
        self.policy.evaluation_ref()
    }

    /// Nodes that the query is about; none: all.
    pub fn candidates(&self) -> Option<pb::NodeSet> {
        (!self.nodes.is_empty()).then(|| pb::NodeSet {
            names: self.nodes.clone(),
            ..pb::NodeSet::default()
        })
    }

    /// Free capacity that a node must have.
    pub fn resource_fit(&self) -> pb::ResourceFit {
        match self.resource_fit {
            ResourceFitArg::None => pb::ResourceFit::None,
            ResourceFitArg::Idle => pb::ResourceFit::Idle,
            ResourceFitArg::FutureIdle => pb::ResourceFit::FutureIdle,
        }
    }
}

/// Parts that the items of Filter and Score have in common.
#[derive(Debug)]
pub struct ItemParts<'i> {
    /// Problem instead of a result.
    pub problem: Option<&'i pb::Problem>,
    /// Warnings about the task.
    pub warnings: &'i [pb::Problem],
    /// Constraints that the result does not take into account.
    pub not_evaluated: &'i [pb::NotEvaluated],
    /// True if a node passed.
    pub has_node: bool,
}

/// Result of Filter or Score about a task.
pub trait NodeItem: PartialEq {
    /// Problem, warnings and outcome, without the names of nodes.
    fn parts(&self) -> ItemParts<'_>;
}

impl NodeItem for pb::FilterItem {
    fn parts(&self) -> ItemParts<'_> {
        ItemParts {
            problem: self.problem.as_ref(),
            warnings: &self.warnings,
            not_evaluated: &self.not_evaluated,
            has_node: self.fit_count > 0,
        }
    }
}

impl NodeItem for pb::ScoreItem {
    fn parts(&self) -> ItemParts<'_> {
        ItemParts {
            problem: self.problem.as_ref(),
            warnings: &self.warnings,
            not_evaluated: &self.not_evaluated,
            has_node: self.nodes.as_ref().is_some_and(|set| !set.names.is_empty()),
        }
    }
}

/// Prints the items of a response about tasks by `show`, equal ones together and under a title; with `-o json` only their
/// warnings.
///
/// # Errors
/// An item is a problem, or has no node.
pub async fn show_items<'t, I: NodeItem>(
    connection: &mut ClientConnection,
    output: OutputFormat,
    metadata: Option<&pb::ResponseMetadata>,
    items: impl Iterator<Item = (&'t pb::Task, I)>,
    show: impl Fn(&str, &I) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let is_table = output == OutputFormat::Table;
    let mut outcome = Ok(());
    let mut without_node = Vec::new();
    let mut unevaluated = UnevaluatedSet::default();
    unevaluated.add_metadata(metadata);
    for (tasks, item) in group_equal(items) {
        let title = tasks_title(&tasks);
        let parts = item.parts();
        unevaluated.add(parts.not_evaluated, u32::try_from(tasks.len()).unwrap_or(u32::MAX));
        if let Err(failure) = check_item(&title, parts.problem, parts.warnings) {
            outcome = Err(unknown_name::with_suggestion(connection, failure).await);
            continue;
        }
        if is_table {
            show(&title, &item)?;
        }
        if !parts.has_node {
            without_node.push((title, tasks));
        }
    }
    if is_table {
        not_evaluated::print(&unevaluated.rows())?;
    }
    outcome?;
    require_nodes(connection, &without_node).await
}

/// Equal items together, in the order of their first, each with its tasks.
fn group_equal<'t, I: PartialEq>(items: impl IntoIterator<Item = (&'t pb::Task, I)>) -> Vec<(Vec<&'t pb::Task>, I)> {
    let mut groups: Vec<(Vec<&pb::Task>, I)> = Vec::new();
    for (task, item) in items {
        let alike = |known: &&pb::Task| known.requests == task.requests && known.annotations == task.annotations;
        let group = groups
            .iter_mut()
            .find(|(tasks, known)| *known == item && tasks.first().is_some_and(&alike));
        match group {
            Some((tasks, _)) => tasks.push(task),
            None => groups.push((vec![task], item)),
        }
    }
    groups
}

/// Title of tasks with equal results.
fn tasks_title(tasks: &[&pb::Task]) -> String {
    let first = tasks.first().map(|task| task_title(task)).unwrap_or_default();
    match tasks.len() {
        0 | 1 => first,
        number => format!("{first} and {} more like it", number.saturating_sub(1)),
    }
}

/// Fails with exit code 1 if some tasks have no node, and names resources that no node of the cluster has.
async fn require_nodes(
    connection: &mut ClientConnection,
    without_node: &[(String, Vec<&pb::Task>)],
) -> Result<(), CommandError> {
    let Some((title, _)) = without_node.first() else {
        return Ok(());
    };
    let mut message = format!("refused: no node passed for {title}");
    if without_node.len() > 1 {
        let more = output::count(without_node.len().saturating_sub(1), "other kind");
        message = format!("{message}, nor for {more} of tasks");
    }
    let tasks = without_node.iter().flat_map(|(_, tasks)| tasks);
    let requested = tasks.flat_map(|task| &task.requests).flat_map(|list| list.items.keys());
    let extended: BTreeSet<&String> = requested.filter(|name| name.contains('/')).collect();
    if !extended.is_empty() {
        let known = unknown_name::node_resources(connection).await?;
        for name in extended.into_iter().filter(|name| !known.contains(name)) {
            let meant = unknown_name::nearest(name, &known);
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
            message = format!("{message}\nhint: no node has `{name}`{meant}");
        }
    }
    Err(CommandError::message(message))
}

/// Title of a task in a result.
pub fn task_title(task: &pb::Task) -> String {
    if !task.name.is_empty() {
        return format!("task {}", task.name);
    }
    let items = task.requests.iter().flat_map(|list| &list.items);
    let amounts: Vec<String> = items.map(|(name, amount)| format!("{name}: {amount}")).collect();
    format!("a task of {{{}}}", amounts.join(", "))
}

/// Reason of a rejection, in one line.
pub fn blocker_line(blocker: &pb::Rejection) -> String {
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

/// Rejections, one row per reason, with the measurements of some nodes.
pub fn blocker_table(rejections: &[pb::Rejection]) -> Option<TextTable> {
    if rejections.is_empty() {
        return None;
    }
    let mut table = TextTable::new(["NODES", "REJECTED BY", "REASON", "PREEMPTION", "FOR EXAMPLE"]);
    for rejection in rejections {
        let reason = rejection.reason.clone().unwrap_or_default();
        let shown = rejection.samples.first().map(|sample| sample.measurements.as_slice());
        let preemption = preemption_text(&reason, shown.unwrap_or(&reason.measurements));
        let samples: Vec<String> = rejection.samples.iter().map(sample_line).collect();
        table.row([
            rejection.count.to_string(),
            format!("{}\n{}", reason.plugin, reason.code),
            reason.message,
            preemption.to_owned(),
            samples.join("\n"),
        ]);
    }
    Some(table)
}

/// A rejected node with its measurements, in one line.
fn sample_line(node: &pb::RejectedNode) -> String {
    let measurements: Vec<String> = node.measurements.iter().map(output::measurement).collect();
    if measurements.is_empty() {
        return node.node.clone();
    }
    format!("{}: {}", node.node, measurements.join(", "))
}

/// Text on whether preemption may help. If the request exceeds the whole quota, preemption cannot help, even if the
/// plugin reports otherwise. For example, a request of 8 cards against a quota of 4.
pub fn preemption_text(reason: &pb::Reason, measurements: &[pb::Measurement]) -> &'static str {
    let value = |name: &str| measurements.iter().find(|one| one.name == name).map(|one| one.value);
    let beyond_quota = matches!((value("requested"), value("capability")), (Some(asked), Some(quota)) if asked > quota);
    match reason.resolution() {
        pb::Resolution::Unspecified => "",
        pb::Resolution::Unschedulable if !beyond_quota => "may help",
        pb::Resolution::Unschedulable | pb::Resolution::Unresolvable => "cannot help",
    }
}

/// Prints the warnings of an item on standard error. Fails if the item is a problem instead of a result.
pub fn check_item(title: &str, problem: Option<&pb::Problem>, warnings: &[pb::Problem]) -> Result<(), CommandError> {
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
