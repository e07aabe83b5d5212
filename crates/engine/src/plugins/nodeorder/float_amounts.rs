//! Parts of scores by resources, over columns of floats. Most chunks have all amounts in float columns and need no
//! integers.

use super::resources::{BalancedDemand, COMPARED, NonzeroDemand};
use crate::kernel::{BLOCK_SIZE, BlockPlaces, block_of, floor, kernel, quotient};
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, PodSum, SMALL_LIMIT};
use crate::plugin::ChunkScores;

/// Allocatable cpu and memory of the nodes of a chunk, in columns of floats whose integer parts they are, none of them negative
/// or beyond [`SMALL_LIMIT`].
#[derive(Debug)]
pub(super) struct ComparedFloats<'k> {
    chunk: &'k NodeChunk,
    /// Allocatable amounts, integers.
    capacities: [&'k ChunkScores; 2],
    /// Their reciprocals, if all have exact ones.
    reciprocals: Option<[&'k ChunkScores; 2]>,
    /// Number of places to compute.
    lanes: usize,
}

impl<'k> ComparedFloats<'k> {
    /// Columns of a chunk; `None`: they do not show all amounts.
    pub(super) fn of(chunk: &'k NodeChunk) -> Option<Self> {
        let [cpu, memory] = COMPARED.map(|id| chunk.shown_capacities(id));
        let capacities = [cpu?, memory?];
        let [cpu, memory] = COMPARED.map(|id| chunk.resource(id).reciprocals());
        Some(Self {
            chunk,
            capacities,
            reciprocals: cpu.zip(memory).map(<[_; 2]>::from),
            lanes: chunk.lanes(),
        })
    }

    /// Columns of the kernels with these sums.
    fn columns<'s>(&self, [cpu, memory]: [&'s ChunkScores; 2]) -> ComparedColumns<'s>
    where
        'k: 's,
    {
        let [own, other] = self.capacities;
        let [first, second] = self.reciprocals.unwrap_or([&NO_RECIPROCALS; 2]);
        [[own, first, cpu], [other, second, memory]]
    }

    /// Calls a kernel with the columns of these sums of the pods of each node. Returns false if a sum is negative or
    /// too large.
    fn with_sums(&self, cluster_state: &ClusterState, sum: PodSum, run: impl FnOnce(ComparedColumns<'_>)) -> bool {
        let [cpu, memory] = COMPARED.map(|id| self.chunk.shown_pod_floats(id, sum));
        if let (Some(cpu), Some(memory)) = (cpu, memory) {
            run(self.columns([cpu, memory]));
            return true;
        }
        let mut rooms = [[0.0; CHUNK_SIZE]; 2];
        let [cpu_room, memory_room] = &mut rooms;
        let [cpu, memory] = COMPARED;
        let sums = (
            self.chunk.pod_sums_as_floats(cluster_state, cpu, sum, cpu_room),
            self.chunk.pod_sums_as_floats(cluster_state, memory, sum, memory_room),
        );
        if let (Some(cpu), Some(memory)) = sums {
            run(self.columns([cpu, memory]));
            return true;
        }
        false
    }
}

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

/// Allocatable amounts, their reciprocals and what is used, of cpu and of memory.
type ComparedColumns<'k> = [[&'k ChunkScores; 3]; 2];

/// The same of one resource, over the places of a block.
type ResourceBlock<'k> = [&'k BlockPlaces; 3];

/// Blocks of cpu and memory.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn blocks_of<'k>(columns: &ComparedColumns<'k>, number: usize) -> [ResourceBlock<'k>; 2] {
    columns.map(|resource| resource.map(|column| block_of(column, number)))
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
    /// Fills in least and, with `MOST`, most requested, like [`compare`].
    fn compare_floats / compare_floats_portable<const MOST: bool, const KNOWN: bool>(
        columns: ComparedColumns<'_>,
        requests: [f64; 2],
        lanes: usize,
        least: &mut ChunkScores,
        most: &mut ChunkScores,
    ) {
        let blocks = least.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut().zip(most.as_chunks_mut::<BLOCK_SIZE>().0);
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

/// Balance like [`balance_of`], without a branch. It divides by 3 with [`quotient`].
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
    /// Fills in the balance of cpu, memory and, with `DEVICE`, a device, like [`balance`].
    fn balance_floats / balance_floats_portable<const DEVICE: bool, const KNOWN: bool>(
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
            let at = |places: [&BlockPlaces; 3], offset: usize| places.map(|places| places.get(offset).copied().unwrap_or(0.0));
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
}

/// Placeholder where no reciprocals are used.
static NO_RECIPROCALS: ChunkScores = [0.0; CHUNK_SIZE];

/// True if a request is not negative and below [`SMALL_LIMIT`].
fn is_small_request(request: i64) -> bool {
    (0..SMALL_LIMIT).contains(&request)
}

impl NonzeroDemand {
    /// Fills in least and most requested like [`Self::score`]; false: floats do not show all amounts.
    pub(super) fn score_floats(
        &self,
        cluster_state: &ClusterState,
        floats: &ComparedFloats<'_>,
        least: &mut ChunkScores,
        most: Option<&mut ChunkScores>,
    ) -> bool {
        if !self.requests.iter().all(|request| is_small_request(*request)) {
            return false;
        }
        let (requests, lanes) = (self.requests.map(|request| request as f64), floats.lanes);
        floats.with_sums(cluster_state, PodSum::NonzeroRequests, |columns| {
            let mut unread = [0.0; CHUNK_SIZE];
            match (floats.reciprocals.is_some(), most) {
                (true, None) => compare_floats::<false, true>(columns, requests, lanes, least, &mut unread),
                (true, Some(most)) => compare_floats::<true, true>(columns, requests, lanes, least, most),
                (false, None) => compare_floats::<false, false>(columns, requests, lanes, least, &mut unread),
                (false, Some(most)) => compare_floats::<true, false>(columns, requests, lanes, least, most),
            }
        })
    }
}

impl BalancedDemand {
    /// Fills in the score of each node of a chunk like [`Self::score`]; false: floats do not show all amounts.
    pub(super) fn score_floats(
        &self,
        cluster_state: &ClusterState,
        floats: &ComparedFloats<'_>,
        scores: &mut ChunkScores,
    ) -> bool {
        let device_request = self.device.map_or(0, |(_, request)| request);
        let [cpu, memory] = self.requests;
        let requests = [cpu, memory, device_request];
        if !requests.iter().all(|request| is_small_request(*request)) {
            return false;
        }
        let (requests, lanes) = (requests.map(|request| request as f64), floats.lanes);
        let Some((id, _)) = self.device else {
            let none = [&NO_RECIPROCALS; 2];
            return floats.with_sums(cluster_state, PodSum::Requests, |columns| {
                if floats.reciprocals.is_some() {
                    balance_floats::<false, true>(columns, none, requests, lanes, scores);
                } else {
                    balance_floats::<false, false>(columns, none, requests, lanes, scores);
                }
            });
        };
        let mut rooms = [[0.0; CHUNK_SIZE]; 2];
        let [capacity_room, used_room] = &mut rooms;
        let capacities = floats.chunk.capacities_as_floats(id, capacity_room);
        let used = floats
            .chunk
            .pod_sums_as_floats(cluster_state, id, PodSum::Requests, used_room);
        let Some(device) = capacities.zip(used).map(<[_; 2]>::from) else {
            return false;
        };
        floats.with_sums(cluster_state, PodSum::Requests, |columns| {
            if floats.reciprocals.is_some() {
                balance_floats::<true, true>(columns, device, requests, lanes, scores);
            } else {
                balance_floats::<true, false>(columns, device, requests, lanes, scores);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::resources::{balance, compare};
    use super::*;
    use crate::kernel::reciprocal;
    use crate::model::IntegerColumn;

    /// Kernels of floats, as every processor runs them.
    type CompareKernel = fn(ComparedColumns<'_>, [f64; 2], usize, &mut ChunkScores, &mut ChunkScores);
    type BalanceKernel = fn(ComparedColumns<'_>, [&ChunkScores; 2], [f64; 3], usize, &mut ChunkScores);

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
            let columns = [0, 1].map(|at| [&own[at], &reciprocals[at], &held[at]]);
            let small = requests.map(|request| request as f64);
            let whole: Vec<IntegerColumn> = capacities.iter().map(|own| integers(own)).collect();
            let taken: Vec<IntegerColumn> = used.iter().map(|own| integers(own)).collect();
            let (mut least, mut most, mut balanced) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE], [[0.0; CHUNK_SIZE]; 2]);
            compare::<true>(&[whole[0], whole[1]], &[taken[0], taken[1]], [small[0], small[1]], &mut least, &mut most);
            let none = [0; CHUNK_SIZE];
            let pair = [0, 1].map(|at| (&whole[at], &taken[at], requests[at]));
            balance::<false>(pair, (&none, &none, 0), &mut balanced[0]);
            balance::<true>(pair, (&whole[2], &taken[2], requests[2]), &mut balanced[1]);
            let compares: [CompareKernel; 4] = [
                compare_floats::<true, true>,
                compare_floats::<true, false>,
                compare_floats_portable::<false, true, true>,
                compare_floats_portable::<true, true, true>,
            ];
            for kernel in compares {
                let (mut own_least, mut own_most) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE]);
                kernel(columns, [small[0], small[1]], lanes, &mut own_least, &mut own_most);
                prop_assert_eq!(&own_least[..lanes], &least[..lanes]);
                prop_assert_eq!(&own_most[..lanes], &most[..lanes]);
            }
            let balances: [[BalanceKernel; 4]; 2] = [
                [
                    balance_floats::<false, true>,
                    balance_floats::<false, false>,
                    balance_floats_portable::<false, false, true>,
                    balance_floats_portable::<true, false, true>,
                ],
                [
                    balance_floats::<true, true>,
                    balance_floats::<true, false>,
                    balance_floats_portable::<false, true, true>,
                    balance_floats_portable::<true, true, true>,
                ],
            ];
            for (kernels, balanced) in balances.into_iter().zip(&balanced) {
                for kernel in kernels {
                    let mut scores = [0.0; CHUNK_SIZE];
                    kernel(columns, [&own[2], &held[2]], small, lanes, &mut scores);
                    prop_assert_eq!(&scores[..lanes], &balanced[..lanes]);
                }
            }
        }
    }
}
