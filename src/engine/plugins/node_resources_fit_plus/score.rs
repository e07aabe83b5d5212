//! The score of a node, in integers: cut twice, per resource and in the weighted mean.
//!
//! Where amounts are small enough, as nearly always, floats give the same integers, many nodes at a time:
//!
//! - Amounts below 2^46 and 100 times as much are exact. `⌊100 x / c⌋` with 0 ≤ x ≤ c < 2^46 is the float quotient cut off:
//!   the quotient rounds to a whole number k ≤ 100 that it does not reach only if it is nearer than 2^-47 to it, half a unit
//!   in the last place below 128; but it is at least 1/c > 2^-46 away. So with the weighted mean, which is at most 100, too.
//! - A whole unit begun counts: `⌈m / 1000⌉` of thousandths m < 2^50 is the float quotient rounded up: it is whole, or at
//!   least 0.001 away from whole numbers, which are less than 2^41 and have neighbours nearer than that.
//! - Where no instruction cuts floats off, adding and taking away 2^52 rounds such a one to the nearest whole number, which is at
//!   most one too large (too small for rounding up), and says so by being greater (less) than it.

use crate::engine::kernel::kernel;
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
    /// Weights and what the task adds are such that floats may give the scores.
    small: bool,
}

/// Amounts and sums of weights below this are small.
const SMALL: i64 = 1 << 46;

/// A term over the nodes of a chunk, in floats.
#[derive(Clone, Copy, Debug)]
struct Shares<'k> {
    allocatable: &'k Scores,
    requested: &'k Scores,
    own: f64,
    weight: f64,
    /// Amounts per whole unit.
    unit: f64,
    strategy: Strategy,
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
            small: terms
                .iter()
                .all(|term| (0..SMALL).contains(&term.own) && (0..SMALL).contains(&term.weight))
                && (1..i128::from(SMALL)).contains(&exact),
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

    /// In floats, if that is possible for all nodes of the chunk; else the scores are unfinished.
    fn score_small(&self, chunk: &Chunk, scores: &mut Scores) -> bool {
        scores.fill(0.0);
        let mut small = self.small;
        for term in &self.terms {
            let floats = |whole| chunk.whole_floats(term.id, whole);
            let (Some(allocatable), Some(requested)) = (floats(Whole::Allocatable), floats(Whole::Requested)) else {
                return false;
            };
            small = small
                && add_share(
                    Shares {
                        allocatable,
                        requested,
                        own: term.own as f64,
                        weight: term.weight as f64,
                        unit: if term.id.counts_alike() { 1.0 } else { 1_000.0 },
                        strategy: term.strategy,
                    },
                    scores,
                );
        }
        if small {
            cut_mean(self.weights as f64, scores);
        }
        small
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

kernel! {
    /// Adds a resource's part times its weight to each score. False: some amount is not small; then the scores mean nothing.
    fn add_share / add_share_plainly(share: Shares<'_>, scores: &mut Scores) -> bool {
        if share.unit == 1.0 {
            add_in_floats::<FUSED, true>(share, scores)
        } else {
            add_in_floats::<FUSED, false>(share, scores)
        }
    }
}

kernel! {
    /// Divides sums of parts by the sum of weights, and cuts the mean off.
    fn cut_mean / cut_mean_plainly(weights: f64, scores: &mut Scores) {
        for score in scores {
            *score = down::<FUSED>(*score / weights);
        }
    }
}

/// Between this and twice as much, floats are the whole numbers.
const WHOLE: f64 = (1_u64 << 52) as f64;

/// Cuts off what is from 0 to 2^51. `INSTRUCTION`: there is one for that.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn down<const INSTRUCTION: bool>(value: f64) -> f64 {
    if INSTRUCTION {
        return value.trunc();
    }
    let near = value + WHOLE - WHOLE;
    near - if near > value { 1.0 } else { 0.0 }
}

/// Rounds up what is from 0 to 2^51.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn up<const INSTRUCTION: bool>(value: f64) -> f64 {
    if INSTRUCTION {
        return value.ceil();
    }
    let near = value + WHOLE - WHOLE;
    near + if near < value { 1.0 } else { 0.0 }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch here would keep the loop from being vectorised"
)]
#[inline(always)]
fn add_in_floats<const FUSED: bool, const ALIKE: bool>(share: Shares<'_>, scores: &mut Scores) -> bool {
    let (limit, mut small) = (SMALL as f64, true);
    let [most, least] = [Strategy::Most, Strategy::Least].map(|one| f64::from(u8::from(share.strategy == one)));
    let columns = share.allocatable.iter().zip(share.requested);
    for (score, (&capacity, &used)) in scores.iter_mut().zip(columns) {
        small &= (capacity >= 0.0) & (capacity < limit) & (used >= 0.0) & (used < limit);
        let whole = |amount: f64| {
            if ALIKE {
                amount
            } else {
                up::<FUSED>(amount / share.unit)
            }
        };
        let (capacity, total) = (whole(capacity), whole(used) + share.own);
        let left = capacity - total;
        let left = if left > 0.0 { left } else { 0.0 };
        let full = if total < capacity { total } else { capacity };
        let amount = full * most + left * least;
        let part = down::<FUSED>(amount * MAX_SCORE as f64 / capacity);
        *score += if capacity > 0.0 { part } else { 0.0 } * share.weight;
    }
    small
}

impl Scorer for Mean {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &Chunk, parts: &mut [Scores]) {
        let Some(scores) = parts.first_mut() else { return };
        if self.weights == 0 {
            scores.fill(MAX_SCORE as f64);
        } else if self.score_small(chunk, scores) {
            // Nothing is left to do.
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

    use std::sync::Arc;

    use super::*;
    use crate::engine::model::{Amounts, NodeRecord, ResourceTable, Table, View};

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

    #[test]
    fn amounts_that_are_not_small_are_left_to_integers() {
        let small = [64.0; CHUNK];
        for odd in [SMALL as f64, -1.0, f64::INFINITY, f64::NAN] {
            for at in [0, 100, CHUNK - 1] {
                let mut column = small;
                column[at] = odd;
                for (allocatable, requested, is_small) in [
                    (&small, &small, true),
                    (&column, &small, false),
                    (&small, &column, false),
                ] {
                    for unit in [1.0, 1_000.0] {
                        let share = Shares {
                            allocatable,
                            requested,
                            own: 1.0,
                            weight: 1.0,
                            unit,
                            strategy: Strategy::Most,
                        };
                        let mut scores = [0.0; CHUNK];
                        assert_eq!(add_share(share, &mut scores), is_small, "{odd} {at}");
                        assert_eq!(add_share_plainly::<false>(share, &mut scores), is_small, "{odd} {at}");
                        assert_eq!(add_share_plainly::<true>(share, &mut scores), is_small, "{odd} {at}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn floats_are_cut_without_the_instruction(whole in 0_u64..1 << 46, part in 1_u64..1_000, divisor in 2_u64..1_000_000) {
            for value in [whole as f64, (whole * 1_000 + part) as f64 / 1_000.0, whole as f64 / divisor as f64] {
                prop_assert_eq!(down::<false>(value).to_bits(), value.trunc().to_bits());
                prop_assert_eq!(up::<false>(value).to_bits(), value.ceil().to_bits());
            }
        }

        #[test]
        fn floats_give_the_same_integers(
            nodes in proptest::collection::vec((0_i64..SMALL, 0_i64..SMALL, 0_u32..40), 64),
            own in 0_i64..SMALL,
            weights in (0_i64..5_000, 1_i64..5_000),
        ) {
            let mut index = Table::default();
            let mut resources = ResourceTable::default();
            let disk = resources.intern("ephemeral-storage", 9).unwrap();
            (0..).zip(&nodes).for_each(|(slot, _)| { index.insert(format!("n{slot}").into(), slot); });
            let mut view = View::new(Arc::new(index), 1);
            view.set_resources(Arc::new(resources));
            for (slot, &(capacity, used, shift)) in nodes.iter().enumerate() {
                let some = |amount: i64| Amounts::from_iter([(ResourceId::MEMORY, amount >> shift), (disk, amount >> shift)]);
                let node = NodeRecord {
                    name: format!("n{slot}").into(),
                    allocatable: some(capacity),
                    unattributed_used: Some(some(used)),
                    ..NodeRecord::default()
                };
                view.put_node(Arc::new(node), &Arc::from("s"));
            }
            for strategies in [[Strategy::Most, Strategy::Least], [Strategy::Least, Strategy::Most]] {
                let [first, second] = strategies;
                let terms = vec![
                    Term { id: ResourceId::MEMORY, own, strategy: first, weight: weights.0 },
                    Term { id: disk, own: own >> 20, strategy: second, weight: weights.1 },
                ];
                let mean = Mean::new(terms, Arithmetic::Exact);
                let [mut floats, mut integers, mut portable, mut fused] = [[0.0; CHUNK]; 4];
                let chunk = view.chunks().get(0).unwrap();
                prop_assert!(mean.score_small(chunk, &mut floats));
                mean.score_narrow(chunk, &mut integers);
                prop_assert_eq!(floats, integers);
                for term in &mean.terms {
                    let floats = |whole| chunk.whole_floats(term.id, whole).unwrap();
                    let share = Shares {
                        allocatable: floats(Whole::Allocatable),
                        requested: floats(Whole::Requested),
                        own: term.own as f64,
                        weight: term.weight as f64,
                        unit: if term.id.counts_alike() { 1.0 } else { 1_000.0 },
                        strategy: term.strategy,
                    };
                    prop_assert!(add_share_plainly::<false>(share, &mut portable));
                    prop_assert!(add_share_plainly::<true>(share, &mut fused));
                }
                cut_mean_plainly::<false>(mean.weights as f64, &mut portable);
                cut_mean_plainly::<true>(mean.weights as f64, &mut fused);
                for one in [floats, portable, fused] {
                    prop_assert_eq!(one.map(f64::to_bits), integers.map(f64::to_bits));
                }
            }
        }

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
