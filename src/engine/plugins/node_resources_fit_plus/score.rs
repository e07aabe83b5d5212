//! The score of a node, in integers: cut twice, per resource and in the weighted mean.

use crate::engine::model::{CHUNK, Chunk, ResourceId, Whole, Wholes};
use crate::engine::plugin::{Scorer, Scores};

/// The best score, and that of a node about which nothing can be said.
pub(super) const MAX_SCORE: i64 = 100;
/// Up to this amount, 100 times as much fits in 64 bits.
const NARROW: i64 = i64::MAX / MAX_SCORE;

/// What is good about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// That it becomes full.
    Most,
    /// That it stays free.
    Least,
    /// Nothing: scores 0, and its weight still counts.
    Unknown,
}

/// How integers that do not fit in 64 bits are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    /// They are what they are.
    Exact,
    /// Their upper bits are lost, as in the reference.
    Wrapping,
}

impl Arithmetic {
    #[expect(clippy::cast_possible_truncation, reason = "the reference loses the upper bits")]
    fn wrap(value: i128) -> i64 {
        value as i64
    }

    fn saturate(value: i128) -> i64 {
        i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
    }
}

/// One requested resource that has an entry in the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) id: ResourceId,
    /// What the task adds.
    pub(super) own: i64,
    pub(super) strategy: Strategy,
    pub(super) weight: i64,
}

/// Scores one resource of a node: 0 to 100.
pub(super) fn part_exact(strategy: Strategy, capacity: i64, total: i64) -> i64 {
    let share = |amount: i64| {
        if capacity <= NARROW {
            amount * MAX_SCORE / capacity
        } else {
            Arithmetic::saturate(i128::from(amount) * i128::from(MAX_SCORE) / i128::from(capacity))
        }
    };
    match strategy {
        Strategy::Most if capacity > 0 => share(total.min(capacity)),
        Strategy::Least if capacity > 0 && total <= capacity => share(capacity - total),
        Strategy::Most | Strategy::Least | Strategy::Unknown => 0,
    }
}

/// The same as the reference computes it.
pub(super) fn part_wrapping(strategy: Strategy, capacity: i64, total: i64) -> i64 {
    match strategy {
        _ if capacity == 0 => 0,
        Strategy::Most => total.min(capacity).wrapping_mul(MAX_SCORE).wrapping_div(capacity),
        Strategy::Least if total > capacity => 0,
        Strategy::Least => capacity
            .wrapping_sub(total)
            .wrapping_mul(MAX_SCORE)
            .wrapping_div(capacity),
        Strategy::Unknown => 0,
    }
}

/// The weighted mean over the terms.
#[derive(Debug)]
pub(super) struct Mean {
    terms: Vec<Term>,
    arithmetic: Arithmetic,
    /// Sum of weights; wrapped if the arithmetic wraps.
    weights: i128,
    /// No sum of products can exceed 64 bits.
    narrow: bool,
    /// Scores may leave 0 … 100.
    unbounded: bool,
}

impl Mean {
    pub(super) fn new(terms: Vec<Term>, arithmetic: Arithmetic) -> Self {
        let exact: i128 = terms.iter().map(|term| i128::from(term.weight)).sum();
        let absolute: i128 = terms.iter().map(|term| i128::from(term.weight).abs()).sum();
        let weights = match arithmetic {
            Arithmetic::Exact => exact,
            Arithmetic::Wrapping => i128::from(Arithmetic::wrap(exact)),
        };
        Self {
            weights,
            narrow: absolute <= i128::from(NARROW),
            unbounded: arithmetic == Arithmetic::Wrapping || terms.iter().any(|term| term.weight < 0),
            terms,
            arithmetic,
        }
    }

    fn part(&self, term: &Term, capacity: i64, used: i64) -> i64 {
        match self.arithmetic {
            Arithmetic::Exact => part_exact(term.strategy, capacity, used.saturating_add(term.own)),
            Arithmetic::Wrapping => part_wrapping(term.strategy, capacity, used.wrapping_add(term.own)),
        }
    }

    fn columns(&self, chunk: &Chunk, term: &Term) -> (Wholes, Wholes) {
        let narrow = match self.arithmetic {
            Arithmetic::Exact => Arithmetic::saturate,
            Arithmetic::Wrapping => Arithmetic::wrap,
        };
        (
            chunk.wholes(term.id, Whole::Allocatable, narrow),
            chunk.wholes(term.id, Whole::Requested, narrow),
        )
    }

    /// Sums that fit in 64 bits, or lose their upper bits there.
    fn score_narrow(&self, chunk: &Chunk, scores: &mut Scores) {
        let mut sums = [0_i64; CHUNK];
        for term in &self.terms {
            let (capacities, used) = self.columns(chunk, term);
            for (sum, (&capacity, &used)) in sums.iter_mut().zip(capacities.iter().zip(&used)) {
                let part = self.part(term, capacity, used);
                *sum = sum.wrapping_add(part.wrapping_mul(term.weight));
            }
        }
        let weights = Arithmetic::wrap(self.weights);
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum.wrapping_div(weights) as f64;
        }
    }

    fn score_wide(&self, chunk: &Chunk, scores: &mut Scores) {
        let mut sums = [0_i128; CHUNK];
        for term in &self.terms {
            let (capacities, used) = self.columns(chunk, term);
            for (sum, (&capacity, &used)) in sums.iter_mut().zip(capacities.iter().zip(&used)) {
                *sum += i128::from(self.part(term, capacity, used)) * i128::from(term.weight);
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = (sum / self.weights) as f64;
        }
    }
}

impl Scorer for Mean {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &Chunk, parts: &mut [Scores]) {
        let Some(scores) = parts.first_mut() else { return };
        if self.weights == 0 {
            scores.fill(MAX_SCORE as f64);
        } else if self.narrow || self.arithmetic == Arithmetic::Wrapping {
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

    use super::*;

    #[test]
    fn parts_are_cut() {
        use Strategy::{Least, Most, Unknown};
        for part in [part_exact, part_wrapping] {
            assert_eq!(part(Most, 3, 1), 33);
            assert_eq!(part(Least, 3, 1), 66);
            assert_eq!(part(Most, 3, 4), 100, "over capacity counts as full");
            assert_eq!(part(Least, 3, 4), 0);
            assert_eq!(part(Most, 0, 4), 0, "a resource that the node lacks");
            assert_eq!(part(Least, 0, 0), 0);
            assert_eq!(part(Unknown, 3, 1), 0);
        }
    }

    #[test]
    fn large_amounts_wrap_only_in_the_reference() {
        let (peta, exa) = (1_000_000_000_000_000, 1_000_000_000_000_000_000);
        assert_eq!(part_wrapping(Strategy::Most, exa, 200 * peta), 1);
        assert_eq!(part_exact(Strategy::Most, exa, 200 * peta), 20);
    }

    proptest! {
        #[test]
        fn parts_lie_between_0_and_100(capacity in 0..i64::MAX, total in 0..i64::MAX) {
            for strategy in [Strategy::Most, Strategy::Least] {
                let part = part_exact(strategy, capacity, total);
                prop_assert!((0..=MAX_SCORE).contains(&part));
                if capacity <= NARROW {
                    prop_assert_eq!(part, part_wrapping(strategy, capacity, total));
                }
            }
        }
    }
}
