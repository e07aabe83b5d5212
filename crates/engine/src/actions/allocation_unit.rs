//! Tasks that are placed together, and the heap in which they wait.

use crate::decide::SchedulingHeap;
use crate::plugin::TaskGroup;

/// Tasks of a job that wait, in a heap.
pub(super) type TaskHeap = SchedulingHeap<usize>;

/// Tasks that are placed together: all tasks of a job, or of one group of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationUnit<'a> {
    /// Number of the job.
    pub(super) job: usize,
    /// Group; `None`: the job.
    pub(super) group: Option<TaskGroup<'a>>,
    /// True if the job or the group cannot start without all its tasks: the first that finds no node ends the attempt.
    pub(super) needs_all_tasks: bool,
}
