//! Cuts about devices: weights of parts, and what a device can hold of such weights at most. They say what bins can hold, where
//! sums of thousandths say what they have.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

use super::{BoundError, solve};

/// Weights of parts that no devices of a group can exceed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeviceCut {
    /// Weight of each size of parts.
    pub(super) weights: Vec<f64>,
    /// Most that the devices of the group hold.
    pub(super) most: f64,
}

/// Devices of a group: thousandths that are free, and the number of such devices.
pub(super) type DeviceCounts = Vec<(i32, f64)>;

/// Number of patterns after which the search for a cut ends.
const MAX_PATTERNS: usize = 80;
/// Part of the devices by which a cut has to be exceeded.
const LEAST_EXCESS: f64 = 1e-5;

/// Cut that excludes these numbers of parts of these sizes. `None`: fractional devices can hold them.
///
/// The weights come from a linear programme whose rows are patterns of parts that fit in one device. Patterns are added
/// while a device could hold more than the programme permits. The maximum content of a device is then computed from the
/// weights: a cut is valid for any rounding of the solver.
pub(super) fn exceeded_cut(
    sizes: &[i32],
    parts: &[f64],
    devices: &DeviceCounts,
) -> Result<Option<DeviceCut>, BoundError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let weights: Vec<Variable> = parts.iter().map(|count| problem.add_var(*count, (0.0, 1.0))).collect();
    let tops: Vec<Variable> = devices
        .iter()
        .map(|(_, count)| problem.add_var(-count, (0.0, f64::INFINITY)))
        .collect();
    for ((free, _), top) in devices.iter().zip(&tops) {
        for (size, weight) in sizes.iter().zip(&weights).filter(|(size, _)| *size <= free) {
            let fitting = f64::from(free / size);
            problem.add_constraint([(*weight, fitting), (*top, -1.0)], ComparisonOp::Le, 0.0);
        }
    }
    let mut solution = optimal(&problem)?;
    let mut deepest: Option<(f64, DeviceCut)> = None;
    let all: f64 = devices.iter().map(|(_, count)| count).sum();
    for _ in 0..MAX_PATTERNS {
        let values: Vec<f64> = weights.iter().map(|own| solution.var_value(*own).max(0.0)).collect();
        let table = KnapsackTable::new(sizes, &values);
        let mut most = 0.0;
        let mut missing = None;
        for ((free, count), top) in devices.iter().zip(&tops) {
            let best = table.most(*free);
            most += count * best;
            if missing.is_none() && best > solution.var_value(*top) + 1e-7 {
                missing = Some((*free, *top));
            }
        }
        let held: f64 = values.iter().zip(parts).map(|(weight, count)| weight * count).sum();
        let excess = held - most;
        if excess > LEAST_EXCESS * all && deepest.as_ref().is_none_or(|(depth, _)| excess > *depth) {
            deepest = Some((excess, DeviceCut { weights: values, most }));
        }
        let Some((free, top)) = missing else { break };
        let pattern = table.pattern(free);
        let terms = pattern.iter().zip(&weights).filter(|(count, _)| **count > 0);
        let terms: Vec<(Variable, f64)> = terms.map(|(count, weight)| (*weight, f64::from(*count))).collect();
        let terms: Vec<(Variable, f64)> = terms.into_iter().chain([(top, -1.0)]).collect();
        solution = with_row(solution, &terms)?;
    }
    Ok(deepest.map(|(_, cut)| cut))
}

fn optimal(problem: &Problem) -> Result<Solution, BoundError> {
    solve(problem.solve())
}

/// Solution with one more row of at most 0.
fn with_row(solution: Solution, terms: &[(Variable, f64)]) -> Result<Solution, BoundError> {
    solve(solution.add_constraint(terms, ComparisonOp::Le, 0.0))
}

/// Greatest weight that a device with so much free holds, by every amount in steps of a common divisor.
struct KnapsackTable<'s> {
    sizes: &'s [i32],
    step: i32,
    /// Greatest weight, and the size of the part that was added last.
    best: Vec<(f64, Option<usize>)>,
}

impl<'s> KnapsackTable<'s> {
    fn new(sizes: &'s [i32], weights: &[f64]) -> Self {
        let step = sizes.iter().fold(0, |step, size| divisor(step, *size)).max(1);
        let steps = usize::try_from(1000 / step).unwrap_or(0);
        let mut best: Vec<(f64, Option<usize>)> = vec![(0.0, None); steps + 1];
        for amount in 1..=steps {
            let mut own = best.get(amount - 1).map_or((0.0, None), |(weight, _)| (*weight, None));
            for (at, (size, weight)) in sizes.iter().zip(weights).enumerate() {
                let part = usize::try_from(size / step).unwrap_or(usize::MAX);
                let rest = amount.checked_sub(part).and_then(|rest| best.get(rest));
                if let Some((rest, _)) = rest
                    && rest + weight > own.0
                {
                    own = (rest + weight, Some(at));
                }
            }
            if let Some(place) = best.get_mut(amount) {
                *place = own;
            }
        }
        Self { sizes, step, best }
    }

    fn amount(&self, free: i32) -> usize {
        let steps = usize::try_from(free.max(0) / self.step).unwrap_or(0);
        steps.min(self.best.len().saturating_sub(1))
    }

    fn most(&self, free: i32) -> f64 {
        self.best.get(self.amount(free)).map_or(0.0, |(weight, _)| *weight)
    }

    /// Number of parts of each size that have the greatest weight.
    fn pattern(&self, free: i32) -> Vec<u16> {
        let mut counts = vec![0; self.sizes.len()];
        let mut amount = self.amount(free);
        while let Some((_, added)) = self.best.get(amount) {
            let Some((at, size)) = added.and_then(|at| Some((at, self.sizes.get(at)?))) else {
                let Some(less) = amount.checked_sub(1) else { break };
                amount = less;
                continue;
            };
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
            let part = usize::try_from(size / self.step).unwrap_or(usize::MAX);
            amount = amount.saturating_sub(part.max(1));
        }
        counts
    }
}

/// Greatest common divisor.
pub(super) fn divisor(a: i32, b: i32) -> i32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_do_not_fill_devices_exceed_a_cut() {
        // Two parts of 350 fit in a device, not three of them in one and three eighths.
        let cut = exceeded_cut(&[350], &[20.0], &vec![(1000, 9.0)]).unwrap().unwrap();
        let [weight] = cut.weights.as_slice() else {
            panic!("{cut:?}")
        };
        assert!((cut.most - 18.0 * weight).abs() < 1e-6, "{cut:?}");
        assert_eq!(exceeded_cut(&[350], &[18.0], &vec![(1000, 9.0)]).unwrap(), None);
        // Parts of 600 and of 400 fit together.
        assert_eq!(
            exceeded_cut(&[400, 600], &[9.0, 9.0], &vec![(1000, 9.0)]).unwrap(),
            None
        );
        assert!(
            exceeded_cut(&[400, 600], &[9.0, 10.0], &vec![(1000, 9.0)])
                .unwrap()
                .is_some()
        );
        // A device that is partly used holds one of 400 and none of 600.
        let devices = vec![(500, 2.0), (1000, 1.0)];
        assert_eq!(exceeded_cut(&[400, 600], &[3.0, 1.0], &devices).unwrap(), None);
        assert!(exceeded_cut(&[400, 600], &[2.0, 2.0], &devices).unwrap().is_some());
    }

    #[test]
    fn tables_give_the_best_pattern() {
        let table = KnapsackTable::new(&[190, 470, 810], &[0.2, 0.5, 0.8]);
        assert!((table.most(1000) - 1.0).abs() < 1e-12);
        let pattern = table.pattern(1000);
        let size: i32 = pattern
            .iter()
            .zip([190, 470, 810])
            .map(|(count, size)| i32::from(*count) * size)
            .sum();
        assert!(size <= 1000 && pattern != [0, 0, 0], "{pattern:?}");
        assert_eq!((table.most(189), table.pattern(189)), (0.0, vec![0, 0, 0]));
    }
}
