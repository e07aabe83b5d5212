//! Scores by what is requested, over columns of floats whose integer parts are the amounts. Integers are therefore not
//! needed.

use crate::blocks::{BLOCK_SIZE, BlockPlaces, block_of};
use crate::columns::ChunkScores;
use crate::division::quotient;
use crate::kernel::kernel;
use crate::mask::CHUNK_SIZE;
use crate::rounding::floor;

/// Quotient of an amount and a capacity, by its reciprocal where that is exact. 0 has the reciprocal 0; a quotient by it is
/// not read, but finite.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn share<const FUSED: bool, const KNOWN: bool>(amount: f64, capacity: f64, reciprocal: f64) -> f64 {
    let divisor = if capacity > 0.0 { capacity } else { 1.0 };
    if FUSED && KNOWN {
        quotient::<true>(amount, divisor, reciprocal)
    } else {
        amount / divisor
    }
}

/// Columns of two resources, such as cpu and memory. The amounts are small.
#[derive(Clone, Copy, Debug)]
pub struct ComparedColumns<'k> {
    /// Allocatable amounts, integers.
    pub capacities: [&'k ChunkScores; 2],
    /// Reciprocals of the capacities, if all are exact.
    pub reciprocals: Option<[&'k ChunkScores; 2]>,
    /// Used amounts, whose integer parts count.
    pub used: [&'k ChunkScores; 2],
}

/// Allocatable amounts, their reciprocals and what is used, of one resource over the places of a block.
type ResourceBlock<'k> = [&'k BlockPlaces; 3];

/// Blocks of both resources. Capacities stand for reciprocals that are not read.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn blocks_of<'k>(columns: &ComparedColumns<'k>, number: usize) -> [ResourceBlock<'k>; 2] {
    let blocks = |columns: [&'k ChunkScores; 2]| columns.map(|column| block_of(column, number));
    let [first, second] = blocks(columns.capacities);
    let [first_reciprocals, second_reciprocals] = blocks(columns.reciprocals.unwrap_or(columns.capacities));
    let [first_used, second_used] = blocks(columns.used);
    [
        [first, first_reciprocals, first_used],
        [second, second_reciprocals, second_used],
    ]
}

/// Sums of a block in [`compare_floats`].
struct ShareSums {
    free: BlockPlaces,
    taken: BlockPlaces,
    /// Number of resources that the node has.
    count: BlockPlaces,
}

impl ShareSums {
    const EMPTY: Self = Self {
        free: [0.0; BLOCK_SIZE],
        taken: [0.0; BLOCK_SIZE],
        count: [0.0; BLOCK_SIZE],
    };

    /// Adds one resource. Loops over one resource at a time are computed for several places at once.
    #[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
    #[inline(always)]
    fn add<const FUSED: bool, const MOST: bool, const KNOWN: bool>(
        &mut self,
        [capacities, reciprocals, used]: ResourceBlock<'_>,
        request: f64,
    ) {
        let sums = self.free.iter_mut().zip(&mut self.taken).zip(&mut self.count);
        let amounts = capacities.iter().zip(reciprocals).zip(used);
        for (((free, taken), count), ((capacity, reciprocal), used)) in sums.zip(amounts) {
            let (capacity, total) = (*capacity, floor(*used) + request);
            let left = if capacity > total { capacity - total } else { 0.0 };
            *free += floor(share::<FUSED, KNOWN>(left * 100.0, capacity, *reciprocal));
            if MOST {
                let held = if capacity > total { total } else { capacity };
                *taken += floor(share::<FUSED, KNOWN>(held * 100.0, capacity, *reciprocal));
            }
            *count += if capacity > 0.0 { 1.0 } else { 0.0 };
        }
    }
}

kernel! {
    /// Fills in least and, if it is wanted, most requested at the leading places, like [`compare`](crate::requested::compare).
    pub fn compare_floats / compare_floats_portable(
        columns: ComparedColumns<'_>,
        requests: [f64; 2],
        lanes: usize,
        least: &mut ChunkScores,
        most: Option<&mut ChunkScores>,
    ) {
        match (columns.reciprocals, most) {
            (Some(_), Some(most)) => compare_blocks::<FUSED, true, true>(columns, requests, lanes, least, most),
            (None, Some(most)) => compare_blocks::<FUSED, true, false>(columns, requests, lanes, least, most),
            (Some(_), None) => compare_blocks::<FUSED, false, true>(columns, requests, lanes, least, &mut [0.0; CHUNK_SIZE]),
            (None, None) => compare_blocks::<FUSED, false, false>(columns, requests, lanes, least, &mut [0.0; CHUNK_SIZE]),
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn compare_blocks<const FUSED: bool, const MOST: bool, const KNOWN: bool>(
    columns: ComparedColumns<'_>,
    requests: [f64; 2],
    lanes: usize,
    least: &mut ChunkScores,
    most: &mut ChunkScores,
) {
    let blocks = least
        .as_chunks_mut::<BLOCK_SIZE>()
        .0
        .iter_mut()
        .zip(most.as_chunks_mut::<BLOCK_SIZE>().0);
    for (number, (least, most)) in blocks.enumerate().take(lanes.div_ceil(BLOCK_SIZE)) {
        let mut sums = ShareSums::EMPTY;
        let [cpu, memory] = blocks_of(&columns, number);
        sums.add::<FUSED, MOST, KNOWN>(cpu, requests[0]);
        sums.add::<FUSED, MOST, KNOWN>(memory, requests[1]);
        for ((least, free), count) in least.iter_mut().zip(&sums.free).zip(&sums.count) {
            *least = floor(free * if *count > 1.0 { 0.5 } else { 1.0 });
        }
        if MOST {
            for ((most, taken), count) in most.iter_mut().zip(&sums.taken).zip(&sums.count) {
                *most = floor(taken * if *count > 1.0 { 0.5 } else { 1.0 });
            }
        }
    }
}

/// Used fractions of one resource over a block.
struct UsedFractions {
    with: BlockPlaces,
    without: BlockPlaces,
    /// 1 where the node has the resource, else 0.
    exists: BlockPlaces,
}

impl UsedFractions {
    const EMPTY: Self = Self {
        with: [0.0; BLOCK_SIZE],
        without: [0.0; BLOCK_SIZE],
        exists: [0.0; BLOCK_SIZE],
    };

    #[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
    #[inline(always)]
    fn of<const FUSED: bool, const KNOWN: bool>(
        [capacities, reciprocals, used]: ResourceBlock<'_>,
        request: f64,
    ) -> Self {
        let mut own = Self::EMPTY;
        let places = own.with.iter_mut().zip(&mut own.without).zip(&mut own.exists);
        let amounts = capacities.iter().zip(reciprocals).zip(used);
        for (((with, without), exists), ((capacity, reciprocal), used)) in places.zip(amounts) {
            let used = floor(*used);
            let fraction = |used: f64| {
                let fraction = share::<FUSED, KNOWN>(used, *capacity, *reciprocal);
                if fraction > 1.0 { 1.0 } else { fraction }
            };
            *with = fraction(used + request);
            *without = fraction(used);
            *exists = if *capacity > 0.0 { 1.0 } else { 0.0 };
        }
        own
    }
}

/// Balance like that of [`balance`](crate::requested::balance), without a branch. Its divisions by 3 are those of [`quotient`].
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn balance_at<const FUSED: bool, const DEVICE: bool>(
    [first, second, third]: [f64; 3],
    [has_first, has_second, has_third]: [f64; 3],
) -> f64 {
    let of_two = |one: f64, other: f64, has_both: f64| ((one - other) * (0.5 * has_both)).abs();
    let has_pair = has_first * has_second;
    let mut deviation = of_two(first, second, has_pair);
    if DEVICE {
        let third_of = |sum: f64| quotient::<FUSED>(sum, 3.0, 1.0 / 3.0);
        let mean = third_of(first + second + third);
        let square = |fraction: f64| (fraction - mean) * (fraction - mean);
        let of_three = third_of(square(first) + square(second) + square(third)).sqrt();
        let others = if has_first > 0.0 {
            of_two(first, third, has_third)
        } else {
            of_two(second, third, has_second * has_third)
        };
        let of_all = if has_third > 0.0 { of_three } else { deviation };
        deviation = if has_pair > 0.0 { of_all } else { others };
    }
    floor((1.0 - deviation) * 100.0)
}

kernel! {
    /// Fills in the balance of both resources and, if there is one, a device (capacities and used amounts) at the leading places,
    /// like [`balance`](crate::requested::balance).
    pub fn balance_floats / balance_floats_portable(
        columns: ComparedColumns<'_>,
        device: Option<[&ChunkScores; 2]>,
        requests: [f64; 3],
        lanes: usize,
        scores: &mut ChunkScores,
    ) {
        let none = columns.used;
        match (columns.reciprocals, device) {
            (Some(_), Some(device)) => balance_blocks::<FUSED, true, true>(columns, device, requests, lanes, scores),
            (None, Some(device)) => balance_blocks::<FUSED, true, false>(columns, device, requests, lanes, scores),
            (Some(_), None) => balance_blocks::<FUSED, false, true>(columns, none, requests, lanes, scores),
            (None, None) => balance_blocks::<FUSED, false, false>(columns, none, requests, lanes, scores),
        }
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn balance_blocks<const FUSED: bool, const DEVICE: bool, const KNOWN: bool>(
    columns: ComparedColumns<'_>,
    device: [&ChunkScores; 2],
    requests: [f64; 3],
    lanes: usize,
    scores: &mut ChunkScores,
) {
    let blocks = scores.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut();
    for (number, scores) in blocks.enumerate().take(lanes.div_ceil(BLOCK_SIZE)) {
        let [cpu, memory] = blocks_of(&columns, number);
        let cpu = UsedFractions::of::<FUSED, KNOWN>(cpu, requests[0]);
        let memory = UsedFractions::of::<FUSED, KNOWN>(memory, requests[1]);
        let device = if DEVICE {
            let [capacities, used] = device.map(|column| block_of(column, number));
            UsedFractions::of::<FUSED, false>([capacities, capacities, used], requests[2])
        } else {
            UsedFractions::EMPTY
        };
        let at =
            |places: [&BlockPlaces; 3], offset: usize| places.map(|places| places.get(offset).copied().unwrap_or(0.0));
        for (offset, score) in scores.iter_mut().enumerate() {
            let exists = at([&cpu.exists, &memory.exists, &device.exists], offset);
            let with = balance_at::<FUSED, DEVICE>(at([&cpu.with, &memory.with, &device.with], offset), exists);
            let without = at([&cpu.without, &memory.without, &device.without], offset);
            let without = balance_at::<FUSED, DEVICE>(without, exists);
            let half = (50.0 + with - without) * 0.5;
            let whole = floor(half.abs());
            *score = if half < 0.0 { 50.0 - whole } else { 50.0 + whole };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::columns::IntegerColumn;
    use crate::division::reciprocal;
    use crate::requested::{balance, compare};

    /// Kernels of floats, as every processor runs them.
    type CompareKernel = fn(ComparedColumns<'_>, [f64; 2], usize, &mut ChunkScores, Option<&mut ChunkScores>);
    type BalanceKernel = fn(ComparedColumns<'_>, Option<[&ChunkScores; 2]>, [f64; 3], usize, &mut ChunkScores);

    fn floats(amounts: &[i64]) -> ChunkScores {
        std::array::from_fn(|offset| amounts[offset] as f64)
    }

    fn integers(amounts: &[i64]) -> IntegerColumn {
        std::array::from_fn(|offset| amounts[offset])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn floats_score_like_integers(
            capacities in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_i64), 1_i64..100, 1_i64..1 << 45], CHUNK_SIZE), 3),
            used in prop::collection::vec(prop::collection::vec(prop_oneof![0_i64..100, 0_i64..1 << 45], CHUNK_SIZE), 3),
            requests in [0_i64..1 << 45, 0_i64..1 << 20, 0_i64..16],
            lanes in prop_oneof![Just(CHUNK_SIZE), 0..CHUNK_SIZE],
        ) {
            let own: Vec<ChunkScores> = capacities.iter().map(|own| floats(own)).collect();
            // Amounts with fractions count as the integers below.
            let held = [floats(&used[0]), floats(&used[1]).map(|amount| amount + 0.25), floats(&used[2])];
            let reciprocals: Vec<ChunkScores> = own.iter().map(|own| own.map(|own| reciprocal(own).unwrap())).collect();
            let divided = ComparedColumns {
                capacities: [&own[0], &own[1]],
                reciprocals: None,
                used: [&held[0], &held[1]],
            };
            let multiplied = ComparedColumns { reciprocals: Some([&reciprocals[0], &reciprocals[1]]), ..divided };
            let small = requests.map(|request| request as f64);
            let whole: Vec<IntegerColumn> = capacities.iter().map(|own| integers(own)).collect();
            let taken: Vec<IntegerColumn> = used.iter().map(|own| integers(own)).collect();
            let (mut least, mut most, mut balanced) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE], [[0.0; CHUNK_SIZE]; 2]);
            compare(&[whole[0], whole[1]], &[taken[0], taken[1]], [small[0], small[1]], &mut least, Some(&mut most));
            let pair = [0, 1].map(|at| (&whole[at], &taken[at], requests[at]));
            balance(pair, None, true, &mut balanced[0]);
            balance(pair, Some((&whole[2], &taken[2], requests[2])), true, &mut balanced[1]);
            let compares: [CompareKernel; 3] =
                [compare_floats, compare_floats_portable::<false>, compare_floats_portable::<true>];
            let balances: [BalanceKernel; 3] =
                [balance_floats, balance_floats_portable::<false>, balance_floats_portable::<true>];
            for columns in [divided, multiplied] {
                for kernel in compares {
                    let (mut own_least, mut own_most, mut alone) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE]);
                    kernel(columns, [small[0], small[1]], lanes, &mut own_least, Some(&mut own_most));
                    kernel(columns, [small[0], small[1]], lanes, &mut alone, None);
                    prop_assert_eq!(&own_least[..lanes], &least[..lanes]);
                    prop_assert_eq!(&own_most[..lanes], &most[..lanes]);
                    prop_assert_eq!(&alone[..lanes], &least[..lanes]);
                }
                for kernel in balances {
                    for (device, balanced) in [None, Some([&own[2], &held[2]])].into_iter().zip(&balanced) {
                        let mut scores = [0.0; CHUNK_SIZE];
                        kernel(columns, device, small, lanes, &mut scores);
                        prop_assert_eq!(&scores[..lanes], &balanced[..lanes]);
                    }
                }
            }
        }
    }
}
