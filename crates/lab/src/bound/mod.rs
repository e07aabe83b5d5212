//! Upper bound on what any placement could allocate: a linear programme over shapes of nodes and classes of tasks.
//!
//! If the sets of tasks that fit on a node can be listed, a variable is the number of nodes of a shape that hold such a
//! set (a pattern). For example, two tasks of 4 GPUs are a pattern of an 8-GPU node. If there are too many sets, a
//! variable is the number of tasks of a class on nodes of a shape. Sums over cpu and memory and cuts for devices limit
//! these variables. Many similar shapes or classes are merged. All steps are relaxations, so the result is a valid
//! upper bound.

mod device_cuts;
mod grouped;
mod patterns;
mod shapes;
#[cfg(test)]
mod tests;

use microlp::{Solution, SolutionStatus, SolveOutcome};
use pumice_engine::devices::{DeviceTask, FreeDevices, WHOLE_DEVICE};

use crate::trace::{LabNode, LabTask};
use crate::workload::SeededWorkload;
use grouped::{GroupedInstance, MAX_CLASSES, MAX_GROUPS};

/// Node as it is before the tasks are placed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundNode {
    /// Free cpu in thousandths.
    pub cpu: i64,
    /// Free memory in MiB.
    pub memory: i64,
    /// Free thousandths of each device.
    pub free: FreeDevices,
    /// Model of the devices.
    pub model: String,
    /// Memory of each device in MiB; 0: not known.
    pub device_memory: u32,
}

/// Class of equal tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundTask {
    /// Cpu and devices.
    pub task: DeviceTask,
    /// Memory in MiB.
    pub memory: i64,
    /// Memory in MiB that the task asks of each device; 0: none in particular.
    pub device_memory: u32,
}

impl BoundNode {
    /// Empty node of a trace.
    pub fn of_trace(node: &LabNode) -> Self {
        Self {
            cpu: node.cpu,
            memory: node.memory,
            free: FreeDevices::from_elem(WHOLE_DEVICE, node.devices),
            model: node.model.to_string(),
            device_memory: 0,
        }
    }
}

impl BoundTask {
    /// Task of a trace.
    pub fn of_trace(task: &LabTask) -> Self {
        Self {
            task: task.task.clone(),
            memory: task.memory,
            device_memory: 0,
        }
    }

    /// Thousandths that the task takes of each device of a node.
    fn milli_on(&self, node: &BoundNode) -> i32 {
        let by_memory = match (self.device_memory, node.device_memory) {
            (0, _) => 0,
            (_, 0) => i64::from(WHOLE_DEVICE),
            (own, all) => (i64::from(own) * i64::from(WHOLE_DEVICE) + i64::from(all) - 1) / i64::from(all),
        };
        i32::try_from(by_memory).unwrap_or(i32::MAX).max(self.task.milli)
    }
}

/// Way in which a bound was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    /// By patterns of nodes.
    Patterns,
    /// By shapes of nodes.
    Shapes,
}

/// Upper bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocationBound {
    /// Thousandths of devices that can be allocated at most.
    pub milli: i64,
    /// Way in which it was found.
    pub kind: BoundKind,
    /// Number of shapes of nodes.
    pub shapes: usize,
    /// Number of classes of tasks with devices.
    pub classes: usize,
}

/// Error of the solver.
#[derive(Debug, thiserror::Error)]
#[error("the linear programme was not solved: {0}")]
pub struct BoundError(String);

/// Maximum amount of devices that tasks can get on these nodes, for any order and any policy. Tasks without devices
/// only reduce the free capacity, so the bound ignores them.
///
/// # Errors
/// The solver failed.
pub fn allocation_bound(nodes: &[BoundNode], tasks: &[BoundTask]) -> Result<AllocationBound, BoundError> {
    let grouped = GroupedInstance::of(nodes, tasks);
    let (optimum, kind) = match patterns::list(&grouped) {
        Some(patterns) => (patterns::solve(&grouped, &patterns)?, BoundKind::Patterns),
        None => (
            shapes::solve(&grouped.coarsened(MAX_GROUPS, MAX_CLASSES))?,
            BoundKind::Shapes,
        ),
    };
    Ok(AllocationBound {
        milli: grouped.round_down(optimum),
        kind,
        shapes: grouped.shapes.len(),
        classes: grouped.classes.len(),
    })
}

/// Bound of a workload: all its tasks on its empty nodes.
///
/// # Errors
/// The solver failed.
pub fn workload_bound(workload: &SeededWorkload<'_>) -> Result<AllocationBound, BoundError> {
    let nodes: Vec<BoundNode> = workload.nodes.iter().map(|node| BoundNode::of_trace(node)).collect();
    let arrivals = workload.arrivals.iter();
    let tasks: Vec<BoundTask> = arrivals.map(|arrival| BoundTask::of_trace(arrival.task)).collect();
    allocation_bound(&nodes, &tasks)
}

/// Solution of a programme that was solved.
fn solve(outcome: Result<SolveOutcome, microlp::Error>) -> Result<Solution, BoundError> {
    match outcome.map_err(|error| BoundError(error.to_string()))? {
        // Only an optimum bounds what others can reach.
        SolveOutcome::Solution(solution) if solution.status() == SolutionStatus::Optimal => Ok(solution),
        SolveOutcome::Solution(_) | SolveOutcome::Interrupted(_) => Err(BoundError("no optimum was found".to_owned())),
    }
}
