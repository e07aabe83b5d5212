//! Programme over groups of nodes and classes: sums of cpu, memory and devices limit how many tasks a group holds.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

use super::device_cuts::{DeviceCounts, exceeded_cut};
use super::grouped::CoarseInstance;
use super::{BoundError, BoundNode, BoundTask, solve as optimum};

/// Number of rounds in which cuts are looked for.
const MAX_ROUNDS: usize = 12;

/// Terms of a row, and their greatest sum.
type CutRow = (Vec<(Variable, f64)>, f64);

/// Group of nodes in the programme.
struct GroupRows {
    devices: DeviceCounts,
    /// Sizes of parts, ascending.
    sizes: Vec<i32>,
    /// Variables of classes with the size of their parts and the number of parts of each task.
    tasks: Vec<(Variable, usize, f64)>,
}

/// Upper bound in thousandths, before it is rounded down.
pub(super) fn solve(instance: &CoarseInstance) -> Result<f64, BoundError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut of_class: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); instance.classes.len()];
    let groups = instance.groups.iter();
    let groups: Vec<GroupRows> = groups
        .filter_map(|group| add_group(&mut problem, group, instance, &mut of_class))
        .collect();
    for ((_, count), own) in instance.classes.iter().zip(&of_class) {
        if own.len() > 1 {
            problem.add_constraint(own.as_slice(), ComparisonOp::Le, *count as f64);
        }
    }
    let mut solution = optimum(problem.solve())?;
    for _ in 0..MAX_ROUNDS {
        let mut has_cut = false;
        for group in &groups {
            if let Some((terms, most)) = group.cut(&solution)? {
                solution = optimum(solution.add_constraint(terms.as_slice(), ComparisonOp::Le, most))?;
                has_cut = true;
            }
        }
        if !has_cut {
            break;
        }
    }
    Ok(solution.objective())
}

impl GroupRows {
    /// Row that the solution exceeds; `None`: the devices can hold its parts, as far as fractions of devices go.
    fn cut(&self, solution: &Solution) -> Result<Option<CutRow>, BoundError> {
        let mut parts = vec![0.0; self.sizes.len()];
        for (variable, size, count) in &self.tasks {
            if let Some(parts) = parts.get_mut(*size) {
                *parts += count * solution.var_value(*variable).max(0.0);
            }
        }
        let Some(cut) = exceeded_cut(&self.sizes, &parts, &self.devices)? else {
            return Ok(None);
        };
        let weight = |size: usize| cut.weights.get(size).copied().unwrap_or(0.0);
        let terms = self
            .tasks
            .iter()
            .map(|(variable, size, count)| (*variable, count * weight(*size)));
        Ok(Some((terms.filter(|(_, weight)| *weight > 0.0).collect(), cut.most)))
    }
}

/// Adds the variables of a group, one for each class that it can hold, and the sums that limit them; `None`: it holds none.
fn add_group(
    problem: &mut Problem,
    group: &[(BoundNode, usize)],
    instance: &CoarseInstance,
    of_class: &mut [Vec<(Variable, f64)>],
) -> Option<GroupRows> {
    // Nodes of a group have devices of one model and memory, so that a class takes as much of each.
    let (first, _) = group.first()?;
    let mut sums: [Vec<(Variable, f64)>; 3] = Default::default();
    let mut added = Vec::new();
    for ((class, count), own) in instance.classes.iter().zip(of_class) {
        let nodes = group.iter();
        let most: f64 = nodes
            .map(|(shape, nodes)| most_on_node(class, shape) as f64 * *nodes as f64)
            .sum();
        if most == 0.0 {
            continue;
        }
        let milli = class.milli_on(first);
        let devices = f64::from(class.task.count);
        let number = problem.add_var(devices * f64::from(milli), (0.0, most.min(*count as f64)));
        own.push((number, 1.0));
        added.push((number, milli, devices));
        let weights = [class.task.cpu as f64, class.memory as f64, devices * f64::from(milli)];
        for (sum, weight) in sums.iter_mut().zip(weights).filter(|(_, weight)| *weight > 0.0) {
            sum.push((number, weight));
        }
    }
    let mut devices: BTreeMap<i32, f64> = BTreeMap::new();
    let mut capacities = [0.0; 3];
    for (shape, nodes) in group {
        let nodes = *nodes as f64;
        let free: i64 = shape.free.iter().map(|free| i64::from(*free)).sum();
        for (capacity, own) in capacities.iter_mut().zip([shape.cpu, shape.memory, free]) {
            *capacity += own.max(0) as f64 * nodes;
        }
        for free in shape.free.iter().filter(|free| **free > 0) {
            *devices.entry(*free).or_default() += nodes;
        }
    }
    for (sum, capacity) in sums.iter().zip(capacities).filter(|(sum, _)| !sum.is_empty()) {
        problem.add_constraint(sum.as_slice(), ComparisonOp::Le, capacity);
    }
    let mut sizes: Vec<i32> = added.iter().map(|(_, milli, _)| *milli).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let place = |milli: i32| sizes.binary_search(&milli).unwrap_or(0);
    let tasks = added
        .iter()
        .map(|(variable, milli, count)| (*variable, place(*milli), *count));
    (!added.is_empty()).then(|| GroupRows {
        tasks: tasks.collect(),
        devices: devices.into_iter().collect(),
        sizes: sizes.clone(),
    })
}

/// Number of tasks of a class that fit on one node of a shape.
fn most_on_node(class: &BoundTask, shape: &BoundNode) -> i64 {
    let task = &class.task;
    if !task.accepts(&shape.model) {
        return 0;
    }
    let by = |free: i64, asked: i64| free.max(0).checked_div(asked).unwrap_or(i64::MAX);
    let milli = class.milli_on(shape).max(1);
    let shares = shape.free.iter().map(|free| i64::from((*free).max(0) / milli));
    let devices = shares.clone().filter(|shares| *shares > 0).count();
    let by_devices = if devices < task.count as usize {
        0
    } else {
        shares.sum::<i64>() / i64::from(task.count.max(1))
    };
    by(shape.cpu, task.cpu)
        .min(by(shape.memory, class.memory))
        .min(by_devices)
}
