//! Questions and answers of Filter and Score, in slots and columns.

use std::fmt;
use std::sync::Arc;

use crate::engine::model::{NodeSlot, Problem, ResourceTable, TaskRecord};
use crate::engine::plugin::{Measurement, Reason};

/// Whether a node must have room for a task, apart from plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceFit {
    /// Not asked.
    None,
    /// allocatable − used.
    Idle,
    /// allocatable − used + releasing − pipelined.
    #[default]
    FutureIdle,
}

/// How much of a filter's verdict is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterDetail {
    /// Counts only.
    Counts,
    /// Counts, and samples with figures.
    Samples,
    /// Also the nodes themselves.
    #[default]
    Nodes,
}

/// What both questions share.
#[derive(Clone, Debug)]
pub struct NodeQuery {
    /// One answer each. An item that could not be read stands as its problem.
    pub tasks: Vec<Result<QueryTask, Problem>>,
    /// Names of the tasks' resources: the cluster state's table, or one that extends it.
    pub resources: Arc<ResourceTable>,
    /// Nodes asked about, in the caller's order, each once; `None`: all.
    pub candidates: Option<Vec<NodeSlot>>,
    /// Ask these plugins only, each for itself; empty: the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// Room.
    pub resource_fit: ResourceFit,
    /// Refused nodes shown per rejection.
    pub samples: usize,
    /// How much of the filter's verdict is wanted.
    pub detail: FilterDetail,
}

/// A task of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryTask {
    /// The task, shared by equal ones if the caller knows them to be equal.
    pub task: Arc<TaskRecord>,
    /// What was overlooked when it was read.
    pub warnings: Vec<Problem>,
}

/// How a question is worked on. The answer does not depend on it.
#[derive(Clone, Copy)]
pub struct Parallelism<'a> {
    /// Threads that may judge classes side by side; 0 counts as 1.
    pub threads: usize,
    /// Says that nobody wants the answer any more; asked before each chunk of nodes.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Parallelism<'_> {
    /// One thread, to the end.
    pub const SEQUENTIAL: Self = Self {
        threads: 1,
        is_cancelled: &|| false,
    };
}

impl fmt::Debug for Parallelism<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effort")
            .field("hands", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Question of Score.
#[derive(Clone, Debug)]
pub struct ScoreQuery {
    /// Tasks, candidates and the rest.
    pub node_query: NodeQuery,
    /// Only nodes that pass Filter, and its verdict.
    pub with_filter: bool,
    /// Only the best so many, best first, ties by name.
    pub limit: Option<usize>,
    /// Also the parts of each score.
    pub with_parts: bool,
}

/// A verdict or scores of one task, shared by tasks of one class.
pub type TaskResults<T> = Vec<Result<TaskResult<T>, Problem>>;

/// An answer on one task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskResult<T> {
    /// The answer of its class.
    pub result: Arc<T>,
    /// What was overlooked in this task.
    pub warnings: Vec<Problem>,
}

/// Verdict on one task class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterVerdict {
    /// Nodes that passed, by slot; beside scores with [`FilterDetail::NodeSetReader`] only.
    pub fit: Vec<NodeSlot>,
    /// Number of these nodes.
    pub fit_count: u32,
    /// Refused nodes, one group per distinct reason, sorted by plugin, code, resource, message.
    pub rejections: Vec<RejectionGroup>,
}

/// Nodes refused for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionGroup {
    /// The reason, without figures.
    pub reason: Reason,
    /// The nodes, by slot; with [`FilterDetail::NodeSetReader`] only.
    pub nodes: Vec<NodeSlot>,
    /// Number of nodes.
    pub count: u32,
    /// Some of them with their figures, first by name.
    pub samples: Vec<(NodeSlot, Vec<Measurement>)>,
}

/// Scores of one task class. Entry `i` of every list belongs to node `i`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreSheet {
    /// The nodes: best first with a limit, else in the order of the candidates, or by slot.
    pub nodes: Vec<NodeSlot>,
    /// Sums over plugins.
    pub totals: Vec<f64>,
    /// With parts or plugins asked for: what each plugin gave.
    pub parts: Vec<ScorePart>,
    /// With a filter asked for: its verdict.
    pub filter: Option<FilterVerdict>,
}

/// One plugin's share of the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorePart {
    /// Plugin.
    pub plugin: Arc<str>,
    /// Part of that plugin; empty: the whole plugin.
    pub part: &'static str,
    /// One per node.
    pub scores: Vec<f64>,
}
