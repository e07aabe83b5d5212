//! Queries and results of Filter and Score, in slots and columns.

use std::sync::Arc;

use crate::model::{NodeSlot, Problem, ResourceTable, TaskRecord};
use crate::plugin::{DecisionTime, Measurement, Reason};

/// Check of the node's resources, apart from plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceFit {
    /// No check.
    None,
    /// Check against allocatable − used.
    Idle,
    /// Check against allocatable − used + releasing − pipelined.
    #[default]
    FutureIdle,
}

/// Detail of a filter's verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterDetail {
    /// Numbers of fitting and rejected nodes only.
    Counts,
    /// Also samples of rejected nodes with measurements.
    Samples,
    /// Also the sets of fitting and rejected nodes.
    #[default]
    Nodes,
}

/// Query that Filter and Score share.
#[derive(Clone, Debug)]
pub struct NodeQuery {
    /// Time of the decision, for plugins that compare with it; `None`: the caller gave none.
    pub now: Option<DecisionTime>,
    /// Tasks, one result each. An item that could not be read is its problem.
    pub tasks: Vec<Result<QueryTask, Problem>>,
    /// Names of the tasks' resources: the cluster state's table, or an extension of it.
    pub resources: Arc<ResourceTable>,
    /// Nodes to evaluate, in the caller's order, each once. `None`: all.
    pub candidates: Option<Vec<NodeSlot>>,
    /// Plugins to evaluate, each by itself. Empty: the tiers of the policy.
    pub plugins: Vec<Arc<str>>,
    /// Check of the node's resources.
    pub resource_fit: ResourceFit,
    /// Number of sampled nodes per rejection.
    pub samples: usize,
    /// Detail of the filter's verdict.
    pub detail: FilterDetail,
}

impl NodeQuery {
    /// Query of no task, for callers that judge nodes by the policy's tiers and read no reasons.
    pub(super) fn about_nodes(
        now: Option<DecisionTime>,
        resources: Arc<ResourceTable>,
        resource_fit: ResourceFit,
    ) -> Self {
        Self {
            now,
            tasks: Vec::new(),
            resources,
            candidates: None,
            plugins: Vec::new(),
            resource_fit,
            samples: 0,
            detail: FilterDetail::Counts,
        }
    }
}

/// Task to evaluate in a query: stored or hypothetical.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryTask {
    /// Task record. Equal tasks share it if the caller has determined that they are equal.
    pub task: Arc<TaskRecord>,
    /// Warnings about the task's input.
    pub warnings: Vec<Problem>,
}

/// Query of Score: tasks, candidate nodes, and the number of best nodes to return.
#[derive(Clone, Debug)]
pub struct ScoreQuery {
    /// Tasks, candidates and the other fields shared with Filter.
    pub node_query: NodeQuery,
    /// True: only nodes that pass Filter are scored, and the result has Filter's verdict.
    pub with_filter: bool,
    /// Number of best nodes to return, best first, ties by name; `None`: all nodes.
    pub limit: Option<usize>,
    /// True: the result has the parts of each score.
    pub with_parts: bool,
    /// Number of further equal tasks to look ahead for. Only without a limit.
    pub ahead: usize,
}

/// Results of tasks; tasks of one class share theirs.
pub type TaskResults<T> = Vec<Result<TaskResult<T>, Problem>>;

/// Result for one task, with the parts of the task that were ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskResult<T> {
    /// Result of the task's class.
    pub result: Arc<T>,
    /// Warnings about the task.
    pub warnings: Vec<Problem>,
}

/// Filter verdict on one task class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterVerdict {
    /// Nodes that passed, by slot; in a score result only with [`FilterDetail::Nodes`].
    pub fit: Vec<NodeSlot>,
    /// Number of nodes that passed.
    pub fit_count: u32,
    /// Rejected nodes, one group per distinct reason, sorted by plugin, code, resource, message.
    pub rejections: Vec<RejectionGroup>,
}

/// Group of nodes that were rejected for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionGroup {
    /// Reason, without measurements.
    pub reason: Reason,
    /// Nodes of the group, by slot; only with [`FilterDetail::Nodes`].
    pub nodes: Vec<NodeSlot>,
    /// Number of nodes in the group.
    pub count: u32,
    /// Sampled nodes with their measurements, the first by name.
    pub samples: Vec<(NodeSlot, Vec<Measurement>)>,
}

/// Scores of one task class. Entry `i` of every list belongs to node `i`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreSheet {
    /// Scored nodes: best first with a limit, else in the order of the candidates, or by slot.
    pub nodes: Vec<NodeSlot>,
    /// Sums over plugins.
    pub totals: Vec<f64>,
    /// Score of each plugin. Present if the query requests parts or names plugins.
    pub parts: Vec<ScorePart>,
    /// Filter's verdict. Present if the query requests it.
    pub filter: Option<FilterVerdict>,
    /// True if the scores of a node do not depend on the other candidates.
    pub independent: bool,
    /// Sheets of the nodes after one more equal task on each node, after two more, and so on, up to the number in the
    /// query. If the last sheet has no nodes, no node fits that many. Empty: the query requests none, or verdicts
    /// depend on more than a node's own state.
    pub ahead: Vec<ScoreSheet>,
}

/// Share of one plugin in the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorePart {
    /// Name of the plugin.
    pub plugin: Arc<str>,
    /// Name of the plugin's part; empty: the whole plugin.
    pub part: &'static str,
    /// Scores, one per node.
    pub scores: Vec<f64>,
}
