//! Changes of a cycle, and their outcome.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::devices::DeviceMask;
use crate::model::{NodeSlot, Problem, TaskStatus};

/// Placement of a task on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// Name of the task.
    pub task: Arc<str>,
    /// Name of the node.
    pub node: Arc<str>,
    /// Card that the task uses there; empty: not given.
    pub card: Arc<str>,
    /// Devices that the task uses there; 0: not given.
    pub devices: DeviceMask,
}

/// Change that a scheduler makes in its cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// Placement of a task on idle amounts.
    Allocate(TaskPlacement),
    /// Placement of a task on amounts that are being released.
    Pipeline(TaskPlacement),
    /// Eviction of a task.
    Evict(Arc<str>),
    /// Undoes Allocate.
    Unallocate(Arc<str>),
    /// Undoes Pipeline.
    Unpipeline(Arc<str>),
    /// Undoes Evict.
    Unevict(Arc<str>),
    /// Failed bind of an allocated task.
    BindFailed(Arc<str>),
    /// Final enqueueing of a job.
    JobEnqueued(Arc<str>),
    /// Savepoint that a later change can return to.
    Savepoint(Arc<str>),
    /// Undoes everything after this savepoint.
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

    /// Task of the change, if it has one.
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

    /// Place of a change that puts a task on a node, and whether the task is pipelined there.
    pub(super) fn placement(&self) -> Option<(&TaskPlacement, bool)> {
        match self {
            Self::Allocate(to) => Some((to, false)),
            Self::Pipeline(to) => Some((to, true)),
            Self::Evict(_)
            | Self::Unallocate(_)
            | Self::Unpipeline(_)
            | Self::Unevict(_)
            | Self::BindFailed(_)
            | Self::JobEnqueued(_)
            | Self::Savepoint(_)
            | Self::RollbackTo(_) => None,
        }
    }

    /// Card of the change; empty: none.
    pub(super) fn card(&self) -> &str {
        self.placement().map_or("", |(to, _)| &to.card)
    }
}

/// Event for plugins that track shares: a task's requests are added to the shares or removed from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareEvent {
    /// Requests of the task are added.
    Allocate(Arc<str>),
    /// Requests of the task are removed.
    Deallocate(Arc<str>),
}

/// Change of a task's place or status in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMoved {
    /// Order of placements: the later one is larger. 0 without a placement.
    pub order: u64,
    /// Card of that placement; empty: not given.
    pub card: Arc<str>,
    /// Status before the cycle.
    pub status: TaskStatus,
    /// Node before the cycle; empty: none.
    pub node: Arc<str>,
}

/// Outcome of changes: changed nodes and queues, warnings, and events for plugins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeOutcome {
    /// Nodes whose vectors changed.
    pub nodes: BTreeSet<NodeSlot>,
    /// Queues whose accounts changed; [`EVERY_QUEUE`](crate::plugin::EVERY_QUEUE): all of them.
    pub queues: BTreeSet<Arc<str>>,
    /// Changes that did not fit, and their effect.
    pub warnings: Vec<Problem>,
    /// Events for plugins that track shares, in order.
    pub events: Vec<ShareEvent>,
}

impl ChangeOutcome {
    /// Appends the outcome of later changes.
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
