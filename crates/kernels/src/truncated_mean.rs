//! Weighted mean over resources of whole percents, cut to an integer. If amounts are small, floats give the same integers
//! for many nodes at a time:
//!
//! - Amounts below 2^46 and 100 times as much are exact. `⌊100 x / c⌋` with 0 ≤ x ≤ c < 2^46 is the truncated float
//!   quotient. The quotient rounds up to an integer k ≤ 100 only if it is nearer to it than 2^-47, half a unit in the
//!   last place below 128; but it is at least 1/c > 2^-46 away. The same holds for the weighted mean, which is at most
//!   100.
//! - A started unit is a whole unit: `⌈m / 1000⌉` of thousandths m < 2^50 is the float quotient rounded up. The
//!   quotient is an integer, or at least 0.001 away from the next, and integers below 2^41 have floats nearer than
//!   that.
//! - Without an instruction for truncation, adding and subtracting 2^52 rounds to the nearest integer. That is at most
//!   one too large (or too small for rounding up), and a comparison with the value shows it.

use crate::columns::{ChunkScores, SMALL_LIMIT};
use crate::kernel::kernel;
use crate::rounding::{round_down, round_up};

/// Columns of one resource over the nodes of a chunk, in floats.
#[derive(Clone, Copy, Debug)]
pub struct PercentColumns<'k> {
    /// Amounts that tasks may use.
    pub allocatable: &'k ChunkScores,
    /// Amounts that tasks request.
    pub requested: &'k ChunkScores,
    /// Whole units that the task adds.
    pub task_amount: f64,
    /// Weight of the resource.
    pub weight: f64,
    /// Amounts per whole unit.
    pub unit: f64,
    /// Factor of the used part: 1 if full nodes are preferred, else 0.
    pub full_factor: f64,
    /// Factor of the free part: 1 if free nodes are preferred, else 0.
    pub free_factor: f64,
}

kernel! {
    /// Adds a resource's part, a whole number from 0 to 100, times its weight to each score. False: some amount is not small, and the scores have no
    /// meaning.
    pub fn add_percent / add_percent_portable(share: PercentColumns<'_>, scores: &mut ChunkScores) -> bool {
        if share.unit == 1.0 {
            add_part::<FUSED, true>(share, scores)
        } else {
            add_part::<FUSED, false>(share, scores)
        }
    }
}

kernel! {
    /// Divides sums of parts by the sum of weights, and truncates the mean.
    pub fn truncate_mean / truncate_mean_portable(weights: f64, scores: &mut ChunkScores) {
        for score in scores {
            *score = round_down::<FUSED>(*score / weights);
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch here would keep the loop from being vectorised"
)]
#[inline(always)]
fn add_part<const FUSED: bool, const ALIKE: bool>(share: PercentColumns<'_>, scores: &mut ChunkScores) -> bool {
    let (limit, mut small) = (SMALL_LIMIT as f64, true);
    let columns = share.allocatable.iter().zip(share.requested);
    for (score, (&capacity, &used)) in scores.iter_mut().zip(columns) {
        small &= (capacity >= 0.0) & (capacity < limit) & (used >= 0.0) & (used < limit);
        let whole = |amount: f64| {
            if ALIKE {
                amount
            } else {
                round_up::<FUSED>(amount / share.unit)
            }
        };
        let (capacity, total) = (whole(capacity), whole(used) + share.task_amount);
        let left = capacity - total;
        let left = if left > 0.0 { left } else { 0.0 };
        let full = if total < capacity { total } else { capacity };
        let amount = full * share.full_factor + left * share.free_factor;
        let part = round_down::<FUSED>(amount * 100.0 / capacity);
        *score += if capacity > 0.0 { part } else { 0.0 } * share.weight;
    }
    small
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mask::CHUNK_SIZE;

    #[test]
    fn large_amounts_are_left_to_the_caller() {
        let small = [64.0; CHUNK_SIZE];
        for odd in [SMALL_LIMIT as f64, -1.0, f64::INFINITY, f64::NAN] {
            for at in [0, 100, CHUNK_SIZE - 1] {
                let mut column = small;
                column[at] = odd;
                for (allocatable, requested, is_small) in [
                    (&small, &small, true),
                    (&column, &small, false),
                    (&small, &column, false),
                ] {
                    for unit in [1.0, 1_000.0] {
                        let share = PercentColumns {
                            allocatable,
                            requested,
                            task_amount: 1.0,
                            weight: 1.0,
                            unit,
                            full_factor: 1.0,
                            free_factor: 0.0,
                        };
                        let mut scores = [0.0; CHUNK_SIZE];
                        assert_eq!(add_percent(share, &mut scores), is_small, "{odd} {at}");
                        assert_eq!(
                            add_percent_portable::<false>(share, &mut scores),
                            is_small,
                            "{odd} {at}"
                        );
                        assert_eq!(add_percent_portable::<true>(share, &mut scores), is_small, "{odd} {at}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn parts_are_those_of_integers(
            nodes in prop::collection::vec((0_i64..SMALL_LIMIT, 0_i64..SMALL_LIMIT, 0_u32..40), CHUNK_SIZE),
            own in 0_i64..SMALL_LIMIT,
            weight in 1_i64..5_000,
        ) {
            for (unit, is_full) in [(1, true), (1, false), (1_000, true), (1_000, false)] {
                let column = |pick: fn(&(i64, i64, u32)) -> i64| std::array::from_fn(|offset| pick(&nodes[offset]) as f64);
                let (allocatable, requested) = (column(|node| node.0 >> node.2), column(|node| node.1 >> node.2));
                let columns = PercentColumns {
                    allocatable: &allocatable,
                    requested: &requested,
                    task_amount: (own / unit) as f64,
                    weight: weight as f64,
                    unit: unit as f64,
                    full_factor: f64::from(u8::from(is_full)),
                    free_factor: f64::from(u8::from(!is_full)),
                };
                let expected: ChunkScores = std::array::from_fn(|offset| {
                    let (capacity, used, shift) = nodes[offset];
                    let whole = |amount: i64| (amount >> shift) / unit + i64::from((amount >> shift) % unit > 0);
                    let (capacity, total) = (whole(capacity), whole(used) + own / unit);
                    let part = if is_full { total.min(capacity) } else { (capacity - total).max(0) };
                    let sum = if capacity > 0 { part * 100 / capacity * weight } else { 0 };
                    (sum / (weight + 1)) as f64
                });
                let adds: [fn(PercentColumns<'_>, &mut ChunkScores) -> bool; 3] =
                    [add_percent, add_percent_portable::<false>, add_percent_portable::<true>];
                let truncates: [fn(f64, &mut ChunkScores); 3] =
                    [truncate_mean, truncate_mean_portable::<false>, truncate_mean_portable::<true>];
                for (add, truncate) in adds.into_iter().zip(truncates) {
                    let mut scores = [0.0; CHUNK_SIZE];
                    prop_assert!(add(columns, &mut scores));
                    truncate((weight + 1) as f64, &mut scores);
                    prop_assert_eq!(scores.map(f64::to_bits), expected.map(f64::to_bits));
                }
            }
        }
    }
}
