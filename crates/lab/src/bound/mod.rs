//! Upper bound on what any placement could allocate: a linear programme over shapes of nodes and classes of tasks.
//!
//! Where all sets of tasks that fit on a node can be listed, a variable is the number of nodes of a shape that hold such a
//! set (a pattern). Where there are too many, a variable is the number of tasks of a class on nodes of a shape, and sums over
//! cpu, memory and devices limit it. Both only leave conditions out, so no placement exceeds them.

use std::collections::{BTreeMap, BTreeSet};

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolutionStatus, SolveOutcome};
use pumice_engine::devices::{DeviceTask, FreeDevices, WHOLE_DEVICE};
use smallvec::SmallVec;

use crate::trace::{LabNode, LabTask};

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
}

/// Class of equal tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundTask {
    /// Cpu and devices.
    pub task: DeviceTask,
    /// Memory in MiB.
    pub memory: i64,
}

impl BoundNode {
    /// Empty node of a trace.
    pub fn of_trace(node: &LabNode) -> Self {
        Self {
            cpu: node.cpu,
            memory: node.memory,
            free: FreeDevices::from_elem(WHOLE_DEVICE, node.devices),
            model: node.model.to_string(),
        }
    }
}

impl BoundTask {
    /// Task of a trace.
    pub fn of_trace(task: &LabTask) -> Self {
        Self {
            task: task.task.clone(),
            memory: task.memory,
        }
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

/// Largest number of patterns that are listed.
const MAX_PATTERNS: usize = 4_000;
/// Number of partial states after which patterns are not listed.
const MAX_STATES: usize = 200_000;

/// Nodes of one shape, and tasks of one class, with their numbers.
struct Grouped {
    shapes: Vec<(BoundNode, usize)>,
    classes: Vec<(BoundTask, usize)>,
}

/// Largest amount of devices that tasks can get on these nodes, whatever the order and the policy. Tasks without devices
/// only take room away, so the bound leaves them out.
///
/// # Errors
/// The solver failed.
pub fn allocation_bound(nodes: &[BoundNode], tasks: &[BoundTask]) -> Result<AllocationBound, BoundError> {
    let grouped = Grouped::of(nodes, tasks);
    let (shapes, classes) = (grouped.shapes.len(), grouped.classes.len());
    let asked: i64 = grouped
        .classes
        .iter()
        .map(|(class, count)| class.task.total() * i64::try_from(*count).unwrap_or(i64::MAX))
        .sum();
    let (milli, kind) = match grouped.patterns() {
        Some(patterns) => (grouped.solve_patterns(&patterns)?, BoundKind::Patterns),
        None => (grouped.solve_shapes()?, BoundKind::Shapes),
    };
    Ok(AllocationBound {
        milli: grouped.round_down(milli).min(asked),
        kind,
        shapes,
        classes,
    })
}

impl Grouped {
    fn of(nodes: &[BoundNode], tasks: &[BoundTask]) -> Self {
        let mut shapes: BTreeMap<BoundNode, usize> = BTreeMap::new();
        for node in nodes {
            let mut node = node.clone();
            node.free.sort_unstable();
            *shapes.entry(node).or_default() += 1;
        }
        let mut classes: BTreeMap<&BoundTask, usize> = BTreeMap::new();
        for task in tasks.iter().filter(|task| task.task.count > 0) {
            *classes.entry(task).or_default() += 1;
        }
        Self {
            shapes: shapes.into_iter().collect(),
            classes: classes.into_iter().map(|(task, count)| (task.clone(), count)).collect(),
        }
    }

    /// Rounds an optimum down to a multiple of all amounts that tasks ask for. The solver's own rounding is allowed for.
    #[expect(clippy::cast_possible_truncation, reason = "amounts are far below 2^53")]
    fn round_down(&self, optimum: f64) -> i64 {
        let step = self
            .classes
            .iter()
            .fold(0, |step, (class, _)| divisor(step, class.task.total()));
        let allowed = optimum + 1e-6 * optimum.abs().max(1.0);
        allowed as i64 / step.max(1) * step.max(1)
    }

    /// Largest patterns of each shape: numbers of tasks by class that fit on one node. `None`: there are too many.
    fn patterns(&self) -> Option<Vec<Vec<Vec<u16>>>> {
        let mut budget = MAX_STATES;
        let mut listed = 0;
        let mut all = Vec::new();
        for (shape, _) in &self.shapes {
            let mut found = Vec::new();
            let root = PatternState {
                counts: Vec::new(),
                cpu: shape.cpu,
                memory: shape.memory,
                states: BTreeSet::from([shape.free.clone()]),
            };
            self.list(shape, root, &mut found, &mut budget)?;
            let largest = maximal(found);
            listed += largest.len();
            if listed > MAX_PATTERNS {
                return None;
            }
            all.push(largest);
        }
        Some(all)
    }

    fn list(
        &self,
        shape: &BoundNode,
        state: PatternState,
        found: &mut Vec<Vec<u16>>,
        budget: &mut usize,
    ) -> Option<()> {
        *budget = budget.checked_sub(state.states.len())?;
        let Some((class, available)) = self.classes.get(state.counts.len()) else {
            found.push(state.counts);
            return (found.len() <= MAX_PATTERNS * 4).then_some(());
        };
        let accepted = class.task.accepts(&shape.model);
        let mut next = Some(state);
        let mut count = 0_u16;
        while let Some(state) = next {
            next = if accepted && usize::from(count) < *available {
                state.with(class)
            } else {
                None
            };
            let mut chosen = state;
            chosen.counts.push(count);
            self.list(shape, chosen, found, budget)?;
            count = count.checked_add(1)?;
        }
        Some(())
    }

    fn solve_patterns(&self, patterns: &[Vec<Vec<u16>>]) -> Result<f64, BoundError> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let placed: Vec<_> = self
            .classes
            .iter()
            .map(|(class, count)| problem.add_var(class.task.total() as f64, (0.0, *count as f64)))
            .collect();
        let mut fits: Vec<Vec<_>> = placed.iter().map(|variable| vec![(*variable, 1.0)]).collect();
        for ((_, nodes), patterns) in self.shapes.iter().zip(patterns) {
            let mut used = Vec::new();
            for pattern in patterns {
                let number = problem.add_var(0.0, (0.0, f64::INFINITY));
                used.push((number, 1.0));
                for (fits, count) in fits.iter_mut().zip(pattern).filter(|(_, count)| **count > 0) {
                    fits.push((number, -f64::from(*count)));
                }
            }
            if !used.is_empty() {
                problem.add_constraint(used.as_slice(), ComparisonOp::Le, *nodes as f64);
            }
        }
        for fits in &fits {
            problem.add_constraint(fits.as_slice(), ComparisonOp::Le, 0.0);
        }
        solve(&problem)
    }

    fn solve_shapes(&self) -> Result<f64, BoundError> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let mut of_class: Vec<Vec<_>> = vec![Vec::new(); self.classes.len()];
        for (shape, nodes) in &self.shapes {
            let nodes = *nodes as f64;
            let mut sums: Vec<Vec<_>> = vec![Vec::new(); 2 + DEVICE_PARTS.len()];
            for ((class, count), own) in self.classes.iter().zip(&mut of_class) {
                let most = most_on_node(class, shape);
                if most == 0 {
                    continue;
                }
                let number = problem.add_var(
                    class.task.total() as f64,
                    (0.0, (*count as f64).min(nodes * most as f64)),
                );
                own.push((number, 1.0));
                let parts = DEVICE_PARTS
                    .iter()
                    .map(|parts| f64::from(class.task.count) * device_part(class.task.milli, *parts));
                let weights = [class.task.cpu as f64, class.memory as f64].into_iter().chain(parts);
                for (sum, weight) in sums.iter_mut().zip(weights).filter(|(_, weight)| *weight > 0.0) {
                    sum.push((number, weight));
                }
            }
            let devices = DEVICE_PARTS
                .iter()
                .map(|parts| shape.free.iter().map(|free| device_part(*free, *parts)).sum::<f64>());
            // A function of parts bounds what fits in a whole device only: a partly used one counts with all it has.
            let capacities = [shape.cpu as f64, shape.memory as f64].into_iter().chain(devices);
            let is_whole = shape.free.iter().all(|free| *free == 1000);
            for (at, (sum, capacity)) in sums.iter().zip(capacities).enumerate() {
                if !sum.is_empty() && (is_whole || at <= 2) {
                    problem.add_constraint(sum.as_slice(), ComparisonOp::Le, capacity * nodes);
                }
            }
        }
        for ((_, count), own) in self.classes.iter().zip(&of_class) {
            if own.len() > 1 {
                problem.add_constraint(own.as_slice(), ComparisonOp::Le, *count as f64);
            }
        }
        solve(&problem)
    }
}

/// Functions of parts by which devices are counted; 0: thousandths as they are.
const DEVICE_PARTS: [u32; 3] = [0, 1, 2];

/// Dual feasible function of a part of a device: values of parts that fit in one device together sum up to 1000 at most
/// (Fekete and Schepers, 1998).
fn device_part(milli: i32, parts: u32) -> f64 {
    let exact = i64::from(milli) * i64::from(parts + 1);
    if parts == 0 || exact % 1000 == 0 {
        return f64::from(milli);
    }
    (exact / 1000) as f64 * 1000.0 / f64::from(parts)
}

/// Number of tasks of a class that fit on one node of a shape.
fn most_on_node(class: &BoundTask, shape: &BoundNode) -> i64 {
    let BoundTask { task, memory } = class;
    if !task.accepts(&shape.model) {
        return 0;
    }
    let by = |free: i64, asked: i64| free.max(0).checked_div(asked).unwrap_or(i64::MAX);
    let shares = shape
        .free
        .iter()
        .map(|free| i64::from(free.max(&0) / task.milli.max(1)));
    let devices = shares.clone().filter(|shares| *shares > 0).count();
    let by_devices = if devices < task.count as usize {
        0
    } else {
        shares.sum::<i64>() / i64::from(task.count.max(1))
    };
    by(shape.cpu, task.cpu).min(by(shape.memory, *memory)).min(by_devices)
}

/// Tasks on one node, and the states in which its devices may be.
struct PatternState {
    counts: Vec<u16>,
    cpu: i64,
    memory: i64,
    states: BTreeSet<FreeDevices>,
}

impl PatternState {
    /// State after one more task; `None`: it does not fit.
    fn with(&self, class: &BoundTask) -> Option<Self> {
        let (cpu, memory) = (self.cpu - class.task.cpu, self.memory - class.memory);
        if cpu < 0 || memory < 0 {
            return None;
        }
        let mut states = BTreeSet::new();
        for free in &self.states {
            add_choices(free, 0, class.task.count, class.task.milli, &mut states);
        }
        (!states.is_empty()).then(|| Self {
            counts: self.counts.clone(),
            cpu,
            memory,
            states,
        })
    }
}

/// Adds the states after `count` different devices from index `from` on have given `milli`.
fn add_choices(free: &FreeDevices, from: usize, count: u32, milli: i32, states: &mut BTreeSet<FreeDevices>) {
    if count == 0 {
        let mut sorted = free.clone();
        sorted.sort_unstable();
        states.insert(sorted);
        return;
    }
    let mut seen: SmallVec<[i32; 8]> = SmallVec::new();
    for (index, left) in free.iter().enumerate().skip(from) {
        if *left < milli || seen.contains(left) {
            continue;
        }
        seen.push(*left);
        let mut after = free.clone();
        if let Some(left) = after.get_mut(index) {
            *left -= milli;
        }
        add_choices(&after, index + 1, count - 1, milli, states);
    }
}

/// Patterns that are part of no other one.
fn maximal(mut patterns: Vec<Vec<u16>>) -> Vec<Vec<u16>> {
    patterns.sort_unstable_by(|a, b| b.cmp(a));
    patterns.dedup();
    let mut largest: Vec<Vec<u16>> = Vec::new();
    for pattern in patterns {
        let covers = |other: &Vec<u16>| other.iter().zip(&pattern).all(|(other, own)| other >= own);
        if !largest.iter().any(covers) {
            largest.push(pattern);
        }
    }
    largest
}

fn solve(problem: &Problem) -> Result<f64, BoundError> {
    match problem.solve().map_err(|error| BoundError(error.to_string()))? {
        // Only an optimum bounds what others can reach.
        SolveOutcome::Solution(solution) if solution.status() == SolutionStatus::Optimal => Ok(solution.objective()),
        SolveOutcome::Solution(_) | SolveOutcome::Interrupted(_) => Err(BoundError("no optimum was found".to_owned())),
    }
}

/// Greatest common divisor.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
