//! Numbers of tasks by status.

use crate::held_bytes::held_bytes;
use crate::model::{TaskRecord, TaskStatus};

/// Number of statuses of a task.
const STATUSES: usize = TaskStatus::Unknown as usize + 1;

/// Numbers of tasks by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusCounts {
    by_status: [u32; STATUSES],
    /// Pending tasks that request nothing but pods.
    without_requests: u32,
}

held_bytes! { plain StatusCounts }

impl StatusCounts {
    /// Counts a task that joins or leaves.
    pub(crate) fn change(&mut self, task: &TaskRecord, joins: bool) {
        let without_requests = task.status == TaskStatus::Pending && task.requests.is_only_pods();
        let places = [
            self.by_status.get_mut(task.status as usize),
            without_requests.then_some(&mut self.without_requests),
        ];
        for place in places.into_iter().flatten() {
            *place = if joins { *place + 1 } else { place.saturating_sub(1) };
        }
    }

    /// Number of tasks in a status.
    pub(crate) fn of(&self, status: TaskStatus) -> i64 {
        self.by_status.get(status as usize).copied().unwrap_or(0).into()
    }

    /// Number of tasks that hold resources: those in Allocated, Binding, Bound and Running.
    pub(crate) fn held(&self) -> i64 {
        let held = [
            TaskStatus::Allocated,
            TaskStatus::Binding,
            TaskStatus::Bound,
            TaskStatus::Running,
        ];
        held.into_iter().map(|status| self.of(status)).sum()
    }

    /// Number of tasks that hold resources or succeeded.
    pub(crate) fn ready(&self) -> i64 {
        self.held() + self.of(TaskStatus::Succeeded)
    }

    /// Number of tasks that hold resources, succeeded, or wait for resources that are being released.
    pub(crate) fn started(&self) -> i64 {
        self.ready() + self.of(TaskStatus::Pipelined)
    }

    /// Number of pending tasks that request nothing but pods.
    pub(crate) fn without_requests(&self) -> i64 {
        self.without_requests.into()
    }

    /// Number of tasks that hold resources, succeeded, or wait on or for a node.
    pub(crate) fn valid(&self) -> i64 {
        self.started() + self.of(TaskStatus::Pending)
    }

    /// Number of all tasks.
    pub(crate) fn total(&self) -> i64 {
        self.by_status.iter().map(|count| i64::from(*count)).sum()
    }
}
