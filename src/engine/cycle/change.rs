//! The changes of a cycle, and what they answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::model::{NodeSlot, Problem, TaskStatus};

/// A task put on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// Task.
    pub task: Arc<str>,
    /// Node.
    pub node: Arc<str>,
    /// The card that it uses there; empty: none said.
    pub card: Arc<str>,
}

/// One thing that happened in a scheduler's cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A task was given idle room.
    Allocate(TaskPlacement),
    /// A task was promised room that is being released.
    Pipeline(TaskPlacement),
    /// A task was told to go.
    Evict(Arc<str>),
    /// Undoes Allocate.
    Unallocate(Arc<str>),
    /// Undoes Pipeline.
    Unpipeline(Arc<str>),
    /// Undoes Evict.
    Unevict(Arc<str>),
    /// The bind of an allocated task failed.
    BindFailed(Arc<str>),
    /// A job is enqueued for good.
    JobEnqueued(Arc<str>),
    /// A mark to return to.
    Savepoint(Arc<str>),
    /// Undo everything after this mark.
    RollbackTo(Arc<str>),
}

impl SessionChange {
    /// The change's name on the wire.
    pub fn wire_name(&self) -> &'static str {
        match self {
            Self::Allocate(_) => "allocate",
            Self::Pipeline(_) => "pipeline",
            Self::Evict(_) => "evict",
            Self::Unallocate(_) => "unallocate",
            Self::Unpipeline(_) => "unpipeline",
            Self::Unevict(_) => "unevict",
            Self::BindFailed(_) => "bind_failed",
            Self::JobEnqueued(_) => "job_enqueued",
            Self::Savepoint(_) => "savepoint",
            Self::RollbackTo(_) => "rollback_to",
        }
    }

    /// The task that it is about, if it is about one.
    pub(super) fn task(&self) -> Option<&Arc<str>> {
        match self {
            Self::Allocate(TaskPlacement { task, .. })
            | Self::Pipeline(TaskPlacement { task, .. })
            | Self::Evict(task)
            | Self::Unallocate(task)
            | Self::Unpipeline(task)
            | Self::Unevict(task)
            | Self::BindFailed(task) => Some(task),
            Self::JobEnqueued(_) | Self::Savepoint(_) | Self::RollbackTo(_) => None,
        }
    }

    /// The card of a placement; empty: none said.
    pub(super) fn card(&self) -> &str {
        match self {
            Self::Allocate(to) | Self::Pipeline(to) => &to.card,
            Self::Evict(_)
            | Self::Unallocate(_)
            | Self::Unpipeline(_)
            | Self::Unevict(_)
            | Self::BindFailed(_)
            | Self::JobEnqueued(_)
            | Self::Savepoint(_)
            | Self::RollbackTo(_) => "",
        }
    }
}

/// What plugins that keep shares are told: a task's requests now count, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareEvent {
    /// They count.
    Allocate(Arc<str>),
    /// They no longer count.
    Deallocate(Arc<str>),
}

/// What became of a task in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMoved {
    /// Larger for what was moved last; its placement, if it has one.
    pub order: u64,
    /// The card of that placement; empty: none said.
    pub card: Arc<str>,
    /// Its status before the cycle.
    pub status: TaskStatus,
    /// Its node before the cycle; empty: none.
    pub node: Arc<str>,
}

/// What changes did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeOutcome {
    /// Nodes whose vectors changed.
    pub nodes: BTreeSet<NodeSlot>,
    /// Queues whose accounts changed; [`EVERY_QUEUE`](crate::engine::plugin::EVERY_QUEUE): all of them.
    pub queues: BTreeSet<Arc<str>>,
    /// Changes that did not fit, and what became of them.
    pub warnings: Vec<Problem>,
    /// Events for shares, in order.
    pub events: Vec<ShareEvent>,
}

impl ChangeOutcome {
    /// Takes in what later changes did.
    pub fn merge(&mut self, later: Self) {
        let Self {
            nodes,
            queues,
            warnings,
            events,
        } = later;
        self.nodes.extend(nodes);
        self.queues.extend(queues);
        self.warnings.extend(warnings);
        self.events.extend(events);
    }
}
