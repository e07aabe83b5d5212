//! Programme over patterns: sets of tasks that fit on one node together, listed whole.

use std::collections::BTreeSet;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use pumice_engine::devices::FreeDevices;
use smallvec::SmallVec;

use super::grouped::GroupedInstance;
use super::{BoundError, BoundNode, BoundTask, solve as optimum};

/// Largest number of patterns that are listed.
const MAX_PATTERNS: usize = 4_000;
/// Number of partial states after which patterns are not listed.
const MAX_STATES: usize = 200_000;

/// Numbers of tasks by class that fit on one node together.
pub(super) type NodePattern = Vec<u16>;

/// Largest patterns of each shape. `None`: there are too many.
pub(super) fn list(instance: &GroupedInstance) -> Option<Vec<Vec<NodePattern>>> {
    let mut budget = MAX_STATES;
    let mut listed = 0;
    let mut all = Vec::new();
    for (shape, _) in &instance.shapes {
        let mut found = Vec::new();
        let root = PatternState {
            counts: Vec::new(),
            cpu: shape.cpu,
            memory: shape.memory,
            states: BTreeSet::from([shape.free.clone()]),
        };
        list_from(instance, shape, root, &mut found, &mut budget)?;
        let largest = maximal(found);
        listed += largest.len();
        if listed > MAX_PATTERNS {
            return None;
        }
        all.push(largest);
    }
    Some(all)
}

/// Adds the patterns that begin with a state.
fn list_from(
    instance: &GroupedInstance,
    shape: &BoundNode,
    state: PatternState,
    found: &mut Vec<NodePattern>,
    budget: &mut usize,
) -> Option<()> {
    *budget = budget.checked_sub(state.states.len())?;
    let Some((class, available)) = instance.classes.get(state.counts.len()) else {
        found.push(state.counts);
        return (found.len() <= MAX_PATTERNS * 4).then_some(());
    };
    let accepted = class.task.accepts(&shape.model);
    let milli = class.milli_on(shape);
    let mut next = Some(state);
    let mut count = 0_u16;
    while let Some(state) = next {
        next = if accepted && usize::from(count) < *available {
            state.with(class, milli)
        } else {
            None
        };
        let mut chosen = state;
        chosen.counts.push(count);
        list_from(instance, shape, chosen, found, budget)?;
        count = count.checked_add(1)?;
    }
    Some(())
}

/// Upper bound in thousandths, before it is rounded down.
pub(super) fn solve(instance: &GroupedInstance, patterns: &[Vec<NodePattern>]) -> Result<f64, BoundError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut of_class: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); instance.classes.len()];
    for ((shape, nodes), patterns) in instance.shapes.iter().zip(patterns) {
        let mut used = Vec::new();
        // Tasks by class on nodes of the shape: at most as many as the patterns hold.
        let mut fits: Vec<Vec<(Variable, f64)>> = Vec::new();
        for ((class, count), own) in instance.classes.iter().zip(&mut of_class) {
            let amount = f64::from(class.task.count) * f64::from(class.milli_on(shape));
            let number = problem.add_var(amount, (0.0, *count as f64));
            own.push((number, 1.0));
            fits.push(vec![(number, 1.0)]);
        }
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
        for fits in &fits {
            problem.add_constraint(fits.as_slice(), ComparisonOp::Le, 0.0);
        }
    }
    for ((_, count), own) in instance.classes.iter().zip(&of_class) {
        if own.len() > 1 {
            problem.add_constraint(own.as_slice(), ComparisonOp::Le, *count as f64);
        }
    }
    Ok(optimum(problem.solve())?.objective())
}

/// Tasks on one node, and the states in which its devices may be.
struct PatternState {
    counts: NodePattern,
    cpu: i64,
    memory: i64,
    states: BTreeSet<FreeDevices>,
}

impl PatternState {
    /// State after one more task that takes `milli` of each device; `None`: it does not fit.
    fn with(&self, class: &BoundTask, milli: i32) -> Option<Self> {
        let (cpu, memory) = (self.cpu - class.task.cpu, self.memory - class.memory);
        if cpu < 0 || memory < 0 {
            return None;
        }
        let mut states = BTreeSet::new();
        for free in &self.states {
            add_choices(free, 0, class.task.count, milli, &mut states);
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
pub(super) fn add_choices(free: &FreeDevices, from: usize, count: u32, milli: i32, states: &mut BTreeSet<FreeDevices>) {
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
fn maximal(mut patterns: Vec<NodePattern>) -> Vec<NodePattern> {
    patterns.sort_unstable_by(|a, b| b.cmp(a));
    patterns.dedup();
    let mut largest: Vec<NodePattern> = Vec::new();
    for pattern in patterns {
        let covers = |other: &NodePattern| other.iter().zip(&pattern).all(|(other, own)| other >= own);
        if !largest.iter().any(covers) {
            largest.push(pattern);
        }
    }
    largest
}
