//! Equal nodes and equal tasks together, and alike ones where there are too many.

use std::collections::BTreeMap;

use super::{BoundNode, BoundTask};

/// Number of groups of nodes above which similar shapes are merged.
pub(super) const MAX_GROUPS: usize = 48;
/// Number of classes above which similar classes are merged.
pub(super) const MAX_CLASSES: usize = 160;

/// Nodes of each shape and tasks of each class, with their numbers.
#[derive(Debug)]
pub(super) struct GroupedInstance {
    pub(super) shapes: Vec<(BoundNode, usize)>,
    pub(super) classes: Vec<(BoundTask, usize)>,
}

/// Merged shapes of nodes, with the number of nodes of each shape.
pub(super) type ShapeGroup = Vec<(BoundNode, usize)>;

/// Groups of shapes, and classes, for sums over groups.
#[derive(Debug)]
pub(super) struct CoarseInstance {
    pub(super) groups: Vec<ShapeGroup>,
    pub(super) classes: Vec<(BoundTask, usize)>,
}

impl GroupedInstance {
    pub(super) fn of(nodes: &[BoundNode], tasks: &[BoundTask]) -> Self {
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

    /// Rounds an optimum down to a multiple of all amounts that tasks can take, and to what they take at most. The solver's
    /// own rounding is allowed for.
    #[expect(clippy::cast_possible_truncation, reason = "amounts are far below 2^53")]
    pub(super) fn round_down(&self, optimum: f64) -> i64 {
        let (mut step, mut asked) = (0, 0_i64);
        for (class, count) in &self.classes {
            let mut most = 0;
            for (shape, _) in self.shapes.iter().filter(|(shape, _)| class.task.accepts(&shape.model)) {
                let amount = i64::from(class.milli_on(shape)) * i64::from(class.task.count);
                (step, most) = (divisor(step, amount), amount.max(most));
            }
            asked = asked.saturating_add(most.saturating_mul(i64::try_from(*count).unwrap_or(i64::MAX)));
        }
        let allowed = optimum + 1e-6 * optimum.abs().max(1.0);
        (allowed as i64 / step.max(1) * step.max(1)).min(asked)
    }

    /// Instance with merged shapes and classes, which limits the size of the programme.
    pub(super) fn coarsened(&self, max_groups: usize, max_classes: usize) -> CoarseInstance {
        let groups = if self.shapes.len() > max_groups {
            let mut groups: BTreeMap<(&str, u32, usize, usize), ShapeGroup> = BTreeMap::new();
            for (shape, count) in &self.shapes {
                let whole = shape.free.iter().filter(|free| **free == 1000).count();
                let key = (shape.model.as_str(), shape.device_memory, shape.free.len(), whole);
                groups.entry(key).or_default().push((shape.clone(), *count));
            }
            groups.into_values().collect()
        } else {
            self.shapes.iter().map(|shape| vec![shape.clone()]).collect()
        };
        let mut classes = self.classes.clone();
        // A task that asks for less fits wherever the task itself does.
        let mut grid = 1_i64;
        while classes.len() > max_classes && grid < 1 << 40 {
            grid *= 2;
            let mut merged: BTreeMap<BoundTask, usize> = BTreeMap::new();
            for (class, count) in &self.classes {
                let mut class = class.clone();
                class.task.cpu -= class.task.cpu.rem_euclid(grid);
                class.memory -= class.memory.rem_euclid(grid);
                *merged.entry(class).or_default() += count;
            }
            classes = merged.into_iter().collect();
        }
        CoarseInstance { groups, classes }
    }
}

/// Greatest common divisor.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
