//! Weighted mean over resources of how full, or how free, nodes become.

use crate::blocks::{BLOCK_SIZE, block_of};
use crate::columns::ChunkScores;
use crate::division::quotient;
use crate::kernel::kernel;
use crate::mask::CHUNK_SIZE;

/// Columns of one term over the nodes of a chunk, or of one block.
#[derive(Clone, Copy, Debug)]
pub struct TermColumns<'k, const PLACES: usize = CHUNK_SIZE> {
    /// Amount that the task requests.
    pub requested: f64,
    /// Weight; negative if full nodes are preferred: a part is then (0 − finally used) · weight / capacity.
    pub weight: f64,
    /// Factor of the capacity: 1 if free nodes are preferred, else 0.
    pub free_factor: f64,
    /// Amounts that tasks may use.
    pub allocatable: &'k [f64; PLACES],
    /// Amounts that tasks use.
    pub used: &'k [f64; PLACES],
    /// Reciprocals of the allocatable amounts.
    pub reciprocals: &'k [f64; PLACES],
}

impl<'k> TermColumns<'k> {
    #[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
    #[inline(always)]
    fn block(&self, number: usize) -> TermColumns<'k, BLOCK_SIZE> {
        TermColumns {
            requested: self.requested,
            weight: self.weight,
            free_factor: self.free_factor,
            allocatable: block_of(self.allocatable, number),
            used: block_of(self.used, number),
            reciprocals: block_of(self.reciprocals, number),
        }
    }
}

/// Divisor of a sum of parts, and factor of the mean.
#[derive(Clone, Copy, Debug)]
pub struct MeanScale {
    /// Sum of weights.
    pub divisor: f64,
    /// Reciprocal of the sum.
    pub reciprocal: f64,
    /// Multiplier of the result, such as 1,000.
    pub factor: f64,
}

/// Number of terms that are added together.
const TERMS_PER_PASS: usize = 4;

kernel! {
    /// Weighted mean at the leading places, and 0 where something requested does not fit. `gaps`: some nodes lack some
    /// resource, which is then ignored. All divisors have reciprocals.
    pub fn weighted_mean / weighted_mean_portable(
        stocks: &[TermColumns<'_>],
        scale: MeanScale,
        gaps: bool,
        lanes: usize,
        scores: &mut ChunkScores,
    ) {
        if gaps {
            mean_of_terms::<FUSED, true>(stocks, scale, lanes, scores);
        } else {
            mean_of_terms::<FUSED, false>(stocks, scale, lanes, scores);
        }
    }
}

/// The mean of [`weighted_mean`] by divisions, where some divisor has no reciprocal. Some nodes may lack some resource.
pub fn divided_mean(stocks: &[TermColumns<'_>], scale: MeanScale, lanes: usize, scores: &mut ChunkScores) {
    mean_of_terms::<false, true>(stocks, scale, lanes, scores);
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn mean_of_terms<const FUSED: bool, const GAPS: bool>(
    stocks: &[TermColumns<'_>],
    scale: MeanScale,
    lanes: usize,
    scores: &mut ChunkScores,
) {
    if let Some(stocks) = stocks.as_array::<4>() {
        return mean_of_few::<FUSED, GAPS, 4>(stocks, scale, lanes, scores);
    }
    if let Some(stocks) = stocks.as_array::<3>() {
        return mean_of_few::<FUSED, GAPS, 3>(stocks, scale, lanes, scores);
    }
    if let Some(stocks) = stocks.as_array::<2>() {
        return mean_of_few::<FUSED, GAPS, 2>(stocks, scale, lanes, scores);
    }
    let mut over: ChunkScores = [0.0; CHUNK_SIZE];
    scores.fill(0.0);
    let (groups, rest) = stocks.as_chunks::<TERMS_PER_PASS>();
    for stocks in groups {
        add_terms::<FUSED, GAPS, TERMS_PER_PASS>(stocks, scores, &mut over);
    }
    for stock in rest {
        add_terms::<FUSED, GAPS, 1>(std::array::from_ref(stock), scores, &mut over);
    }
    for (score, over) in scores.iter_mut().zip(&over) {
        *score = scaled_mean::<FUSED>(*score, *over > 0.0, scale);
    }
}

/// Sums all terms in one step: in one loop over a whole chunk, or block by block over its leading places.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn mean_of_few<const FUSED: bool, const GAPS: bool, const N: usize>(
    stocks: &[TermColumns<'_>; N],
    scale: MeanScale,
    lanes: usize,
    scores: &mut ChunkScores,
) {
    if lanes > CHUNK_SIZE / 2 {
        return mean_of_places::<FUSED, GAPS, N, CHUNK_SIZE>(stocks, scale, scores);
    }
    let blocks = scores.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut();
    for (number, scores) in blocks.enumerate().take(lanes.div_ceil(BLOCK_SIZE)) {
        let stocks = stocks.each_ref().map(|stock| stock.block(number));
        mean_of_places::<FUSED, GAPS, N, BLOCK_SIZE>(&stocks, scale, scores);
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn mean_of_places<const FUSED: bool, const GAPS: bool, const N: usize, const PLACES: usize>(
    stocks: &[TermColumns<'_, PLACES>; N],
    scale: MeanScale,
    scores: &mut [f64; PLACES],
) {
    for (offset, score) in scores.iter_mut().enumerate() {
        let (mut sum, mut is_over) = (0.0, false);
        for stock in stocks {
            let (part, over) = term_score::<FUSED, GAPS, PLACES>(stock, offset);
            sum += part;
            is_over |= over;
        }
        *score = scaled_mean::<FUSED>(sum, is_over, scale);
    }
}

/// Adds some of the terms.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn add_terms<const FUSED: bool, const GAPS: bool, const N: usize>(
    stocks: &[TermColumns<'_>; N],
    scores: &mut ChunkScores,
    over: &mut ChunkScores,
) {
    for (offset, (score, over)) in scores.iter_mut().zip(over).enumerate() {
        for stock in stocks {
            let (part, is_over) = term_score::<FUSED, GAPS, CHUNK_SIZE>(stock, offset);
            *score += part;
            *over = if is_over { 1.0 } else { *over };
        }
    }
}

/// Part of one resource at one node, and whether the task would exceed the capacity there.
///
/// If free nodes are preferred: `(cap − fin) · w / cap`. If full nodes are preferred: `(0 − fin) · −w`, which equals
/// `fin · w`, so that one formula without a branch serves both.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[expect(
    clippy::indexing_slicing,
    reason = "offsets are those of scores, of which there are as many"
)]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch here would keep the loop from being vectorised"
)]
#[inline(always)]
fn term_score<const FUSED: bool, const GAPS: bool, const PLACES: usize>(
    stock: &TermColumns<'_, PLACES>,
    offset: usize,
) -> (f64, bool) {
    let capacity = stock.allocatable[offset];
    let finally = stock.requested + stock.used[offset];
    let left = if FUSED {
        // This rounds once, as the difference does: a multiplication by 0 or 1 does not round.
        capacity.mul_add(stock.free_factor, -finally)
    } else {
        capacity * stock.free_factor - finally
    };
    let part = quotient::<FUSED>(left * stock.weight, capacity, stock.reciprocals[offset]);
    let over = finally > capacity;
    if GAPS {
        (if capacity == 0.0 { 0.0 } else { part }, over & (capacity != 0.0))
    } else {
        (part, over)
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn scaled_mean<const FUSED: bool>(sum: f64, is_over: bool, scale: MeanScale) -> f64 {
    let mean = quotient::<FUSED>(sum, scale.divisor, scale.reciprocal) * scale.factor;
    if is_over { 0.0 } else { mean }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::division::reciprocal;

    type MeanKernel = fn(&[TermColumns<'_>], MeanScale, bool, usize, &mut ChunkScores);

    /// Capacity and used amount of a node.
    fn node() -> impl Strategy<Value = (f64, f64)> {
        let capacity = prop_oneof![
            Just(0.0),
            (1_u32..64_000).prop_map(f64::from),
            (1_u64..1 << 40).prop_map(|n| n as f64)
        ];
        (capacity, 0.0..1.1_f64).prop_map(|(capacity, part)| (capacity, (capacity * part).floor()))
    }

    /// Formula of the reference, node by node.
    fn plain(stocks: &[TermColumns<'_>], scale: MeanScale, offset: usize) -> f64 {
        let mut sum = 0.0;
        for stock in stocks {
            let (capacity, finally) = (stock.allocatable[offset], stock.requested + stock.used[offset]);
            if capacity == 0.0 {
                continue;
            }
            if finally > capacity {
                return 0.0;
            }
            sum += if stock.free_factor == 1.0 {
                (capacity - finally) * stock.weight / capacity
            } else {
                finally * -stock.weight / capacity
            };
        }
        sum / scale.divisor * scale.factor
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_processor_scores_the_same(
            nodes in prop::collection::vec(prop::collection::vec(node(), CHUNK_SIZE), 1..7),
            terms in prop::collection::vec((1_u32..5_000, 0_u32..9, any::<bool>()), 7),
            divisor in 1_u32..60,
        ) {
            let divisor = f64::from(divisor);
            let scale = MeanScale { divisor, reciprocal: reciprocal(divisor).unwrap(), factor: 1_000.0 };
            // In one case some nodes lack a resource, in the other none does.
            for least in [0.0, 1.0] {
                let columns: Vec<[ChunkScores; 3]> = nodes.iter().map(|nodes| {
                    let capacity: ChunkScores = std::array::from_fn(|offset| nodes[offset].0.max(least));
                    let used = std::array::from_fn(|offset| nodes[offset].1);
                    [capacity, used, capacity.map(|capacity| reciprocal(capacity).unwrap())]
                }).collect();
                let stocks: Vec<TermColumns<'_>> = columns.iter().zip(&terms).map(|(columns, &(requested, weight, free))| {
                    let [allocatable, used, reciprocals] = columns;
                    TermColumns {
                        requested: f64::from(requested),
                        weight: if free { f64::from(weight) } else { -f64::from(weight) },
                        free_factor: f64::from(u8::from(free)),
                        allocatable,
                        used,
                        reciprocals,
                    }
                }).collect();
                let expected: [u64; CHUNK_SIZE] = std::array::from_fn(|offset| plain(&stocks, scale, offset).to_bits());
                let kernels: [MeanKernel; 3] = [weighted_mean, weighted_mean_portable::<false>, weighted_mean_portable::<true>];
                for kernel in kernels {
                    for gaps in [true, false].into_iter().filter(|gaps| *gaps || least > 0.0) {
                        let mut scores = [0.0; CHUNK_SIZE];
                        kernel(&stocks, scale, gaps, CHUNK_SIZE, &mut scores);
                        prop_assert_eq!(scores.map(f64::to_bits), expected);
                    }
                }
                let mut scores = [0.0; CHUNK_SIZE];
                divided_mean(&stocks, MeanScale { reciprocal: 0.0, ..scale }, CHUNK_SIZE, &mut scores);
                prop_assert_eq!(scores.map(f64::to_bits), expected);
            }
        }
    }
}
