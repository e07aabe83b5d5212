//! Score of a node, in integers: truncated per resource and in the weighted mean.
//!
//! If amounts are small enough, as nearly always, floats give the same integers for many nodes at a time
//! ([`pumice_kernels::truncated_mean`]).

use pumice_kernels::columns::SMALL_LIMIT;
use pumice_kernels::truncated_mean::{PercentColumns, add_percent, truncate_mean};

use super::super::allocation::AllocationStrategy;
use super::super::integer_arithmetic::{IntegerArithmetic, MAX_SCORE};
use crate::model::{CHUNK_SIZE, IntegerColumn, NodeChunk, ResourceId, WholeVector};
use crate::plugin::{ChunkScores, HookNumbers, NodeScorer};

/// Amount up to which 100 times as much fits in 64 bits.
const MAX_NARROW_AMOUNT: i64 = i64::MAX / MAX_SCORE;

#[expect(clippy::cast_possible_truncation, reason = "the reference loses the upper bits")]
fn wrap(value: i128) -> i64 {
    value as i64
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Requested resource that has an entry in the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FitPlusTerm {
    pub(super) id: ResourceId,
    /// Amount that the task adds.
    pub(super) requested: i64,
    /// Strategy; `None`: an unknown one. Its score is 0, but its weight is included in the mean.
    pub(super) strategy: Option<AllocationStrategy>,
    pub(super) weight: i64,
}

/// Score of one resource of a node: 0 to 100.
pub(super) fn resource_score_exact(strategy: Option<AllocationStrategy>, capacity: i64, total: i64) -> i64 {
    let percent = |amount: i64| IntegerArithmetic::Exact.percent(amount, capacity);
    match strategy {
        Some(AllocationStrategy::Most) if capacity > 0 => percent(total.min(capacity)),
        Some(AllocationStrategy::Least) if capacity > 0 && total <= capacity => percent(capacity - total),
        Some(AllocationStrategy::Most | AllocationStrategy::Least) | None => 0,
    }
}

/// Score of one resource in the reference's wrapping arithmetic.
pub(super) fn resource_score_wrapping(strategy: Option<AllocationStrategy>, capacity: i64, total: i64) -> i64 {
    match strategy {
        _ if capacity == 0 => 0,
        Some(AllocationStrategy::Most) => total.min(capacity).wrapping_mul(MAX_SCORE).wrapping_div(capacity),
        Some(AllocationStrategy::Least) if total > capacity => 0,
        Some(AllocationStrategy::Least) => capacity
            .wrapping_sub(total)
            .wrapping_mul(MAX_SCORE)
            .wrapping_div(capacity),
        None => 0,
    }
}

/// Weighted mean over the terms.
#[derive(Debug)]
pub(super) struct FitPlusMean {
    terms: Vec<FitPlusTerm>,
    arithmetic: IntegerArithmetic,
    /// Sum of weights; wrapped if the arithmetic wraps.
    weight_sum: i128,
    /// True if no sum of products can exceed 64 bits.
    narrow: bool,
    /// True if scores may leave 0 … 100.
    unbounded: bool,
    /// True if the weights and the task's amounts permit a computation in floats.
    small: bool,
}

impl FitPlusMean {
    pub(super) fn new(terms: Vec<FitPlusTerm>, arithmetic: IntegerArithmetic) -> Self {
        let exact: i128 = terms.iter().map(|term| i128::from(term.weight)).sum();
        let absolute: i128 = terms.iter().map(|term| i128::from(term.weight).abs()).sum();
        let weight_sum = match arithmetic {
            IntegerArithmetic::Exact => exact,
            IntegerArithmetic::Wrapping => i128::from(wrap(exact)),
        };
        Self {
            weight_sum,
            narrow: absolute <= i128::from(MAX_NARROW_AMOUNT),
            small: terms
                .iter()
                .all(|term| (0..SMALL_LIMIT).contains(&term.requested) && (0..SMALL_LIMIT).contains(&term.weight))
                && (1..i128::from(SMALL_LIMIT)).contains(&exact),
            unbounded: arithmetic == IntegerArithmetic::Wrapping || terms.iter().any(|term| term.weight < 0),
            terms,
            arithmetic,
        }
    }

    fn part(&self, term: &FitPlusTerm, capacity: i64, used: i64) -> i64 {
        match self.arithmetic {
            IntegerArithmetic::Exact => {
                resource_score_exact(term.strategy, capacity, used.saturating_add(term.requested))
            }
            IntegerArithmetic::Wrapping => {
                resource_score_wrapping(term.strategy, capacity, used.wrapping_add(term.requested))
            }
        }
    }

    fn columns(&self, chunk: &NodeChunk, term: &FitPlusTerm) -> (IntegerColumn, IntegerColumn) {
        let narrow = match self.arithmetic {
            IntegerArithmetic::Exact => saturate,
            IntegerArithmetic::Wrapping => wrap,
        };
        (
            chunk.integer_column(term.id, WholeVector::Allocatable, narrow),
            chunk.integer_column(term.id, WholeVector::Requested, narrow),
        )
    }

    /// Scores in floats. False: some amount is not small, and the scores have no meaning.
    fn score_small(&self, chunk: &NodeChunk, scores: &mut ChunkScores) -> bool {
        scores.fill(0.0);
        let mut small = self.small;
        for term in &self.terms {
            let floats = |whole| chunk.integers_as_floats(term.id, whole);
            let (Some(allocatable), Some(requested)) =
                (floats(WholeVector::Allocatable), floats(WholeVector::Requested))
            else {
                return false;
            };
            small = small
                && add_percent(
                    PercentColumns {
                        allocatable,
                        requested,
                        task_amount: term.requested as f64,
                        weight: term.weight as f64,
                        unit: if term.id.has_kubernetes_unit() { 1.0 } else { 1_000.0 },
                        full_factor: f64::from(u8::from(term.strategy == Some(AllocationStrategy::Most))),
                        free_factor: f64::from(u8::from(term.strategy == Some(AllocationStrategy::Least))),
                    },
                    scores,
                );
        }
        if small {
            truncate_mean(self.weight_sum as f64, scores);
        }
        small
    }

    /// Scores whose sums fit in 64 bits, or wrap there.
    fn score_narrow(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let mut sums = [0_i64; CHUNK_SIZE];
        for term in &self.terms {
            let (capacities, used) = self.columns(chunk, term);
            for (sum, (&capacity, &used)) in sums.iter_mut().zip(capacities.iter().zip(&used)) {
                let part = self.part(term, capacity, used);
                *sum = sum.wrapping_add(part.wrapping_mul(term.weight));
            }
        }
        let weights = wrap(self.weight_sum);
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum.wrapping_div(weights) as f64;
        }
    }

    fn score_wide(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let mut sums = [0_i128; CHUNK_SIZE];
        for term in &self.terms {
            let (capacities, used) = self.columns(chunk, term);
            for (sum, (&capacity, &used)) in sums.iter_mut().zip(capacities.iter().zip(&used)) {
                *sum += i128::from(self.part(term, capacity, used)) * i128::from(term.weight);
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = (sum / self.weight_sum) as f64;
        }
    }
}

impl NodeScorer for FitPlusMean {
    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        if self.weight_sum == 0 {
            scores.fill(MAX_SCORE as f64);
        } else if self.score_small(chunk, scores) {
            // The scores are complete.
        } else if self.narrow || self.arithmetic == IntegerArithmetic::Wrapping {
            self.score_narrow(chunk, scores);
        } else {
            self.score_wide(chunk, scores);
        }
    }

    fn range(&self) -> Option<(f64, f64)> {
        self.unbounded.then_some((0.0, MAX_SCORE as f64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use std::sync::Arc;

    use super::*;
    use crate::model::{ClusterState, NodeRecord, ResourceAmounts, ResourceTable, SortedTable};

    #[test]
    fn resource_scores_are_truncated() {
        use AllocationStrategy::{Least, Most};
        for part in [resource_score_exact, resource_score_wrapping] {
            assert_eq!(part(Some(Most), 3, 1), 33);
            assert_eq!(part(Some(Least), 3, 1), 66);
            assert_eq!(part(Some(Most), 3, 4), 100, "over capacity counts as full");
            assert_eq!(part(Some(Least), 3, 4), 0);
            assert_eq!(part(Some(Most), 0, 4), 0, "a resource that the node lacks");
            assert_eq!(part(Some(Least), 0, 0), 0);
            assert_eq!(part(None, 3, 1), 0);
        }
    }

    #[test]
    fn large_amounts_wrap_only_under_upstream() {
        let (peta, exa) = (1_000_000_000_000_000, 1_000_000_000_000_000_000);
        assert_eq!(
            resource_score_wrapping(Some(AllocationStrategy::Most), exa, 200 * peta),
            1
        );
        assert_eq!(
            resource_score_exact(Some(AllocationStrategy::Most), exa, 200 * peta),
            20
        );
    }

    proptest! {
        #[test]
        fn float_scores_equal_integer_scores(
            nodes in proptest::collection::vec((0_i64..SMALL_LIMIT, 0_i64..SMALL_LIMIT, 0_u32..40), 64),
            own in 0_i64..SMALL_LIMIT,
            weights in (0_i64..5_000, 1_i64..5_000),
        ) {
            let mut index = SortedTable::default();
            let mut resources = ResourceTable::default();
            let disk = resources.intern("ephemeral-storage", 9).unwrap();
            (0..).zip(&nodes).for_each(|(slot, _)| { index.insert(format!("n{slot}").into(), slot); });
            let mut cluster_state = ClusterState::new(Arc::new(index), 1);
            cluster_state.set_resources(Arc::new(resources));
            for (slot, &(capacity, used, shift)) in nodes.iter().enumerate() {
                let some = |amount: i64| ResourceAmounts::from_iter([(ResourceId::MEMORY, amount >> shift), (disk, amount >> shift)]);
                let node = NodeRecord {
                    name: format!("n{slot}").into(),
                    allocatable: some(capacity),
                    unattributed_used: Some(some(used)),
                    ..NodeRecord::default()
                };
                cluster_state.put_node(Arc::new(node), &Arc::from("s"));
            }
            let (most, least) = (Some(AllocationStrategy::Most), Some(AllocationStrategy::Least));
            for [first, second] in [[most, least], [least, most]] {
                let terms = vec![
                    FitPlusTerm { id: ResourceId::MEMORY, requested: own, strategy: first, weight: weights.0 },
                    FitPlusTerm { id: disk, requested: own >> 20, strategy: second, weight: weights.1 },
                ];
                let mean = FitPlusMean::new(terms, IntegerArithmetic::Exact);
                let [mut floats, mut integers] = [[0.0; CHUNK_SIZE]; 2];
                let chunk = cluster_state.chunks().get(0).unwrap();
                prop_assert!(mean.score_small(chunk, &mut floats));
                mean.score_narrow(chunk, &mut integers);
                prop_assert_eq!(floats.map(f64::to_bits), integers.map(f64::to_bits));
            }
        }

        #[test]
        fn parts_lie_between_0_and_100(capacity in 0..i64::MAX, total in 0..i64::MAX) {
            for strategy in [AllocationStrategy::Most, AllocationStrategy::Least].map(Some) {
                let part = resource_score_exact(strategy, capacity, total);
                prop_assert!((0..=MAX_SCORE).contains(&part));
                if capacity <= MAX_NARROW_AMOUNT {
                    prop_assert_eq!(part, resource_score_wrapping(strategy, capacity, total));
                }
            }
        }
    }
}
