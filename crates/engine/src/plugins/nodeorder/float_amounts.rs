//! Parts by resources over columns of floats: most chunks show all amounts in them, so that no integer is made.

use super::resources::{BalancedDemand, COMPARED, NonzeroDemand};
use crate::kernel::{BLOCK_SIZE, BlockPlaces, block_of, floor, kernel, quotient};
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, PodSum, SMALL_LIMIT, WholeVector, are_small};
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
        let lanes = chunk.lanes();
        let [cpu, memory] = COMPARED.map(|id| chunk.integers_as_floats(id, WholeVector::Allocatable));
        let capacities = [cpu?, memory?];
        if !capacities
            .iter()
            .all(|own| are_small(own, lanes) && are_integers(own, lanes))
        {
            return None;
        }
        let [cpu, memory] = COMPARED.map(|id| chunk.resource(id).reciprocals());
        Some(Self {
            chunk,
            capacities,
            reciprocals: cpu.zip(memory).map(<[_; 2]>::from),
            lanes,
        })
    }

    /// Columns of the kernels, with these sums of the pods of each node; `None`: some sum is negative or too large.
    fn with_sums<'s>(
        &'s self,
        cluster_state: &ClusterState,
        sum: PodSum,
        room: &'s mut [ChunkScores; 2],
    ) -> Option<[[&'s ChunkScores; 2]; 3]> {
        let [cpu_room, memory_room] = room;
        let [cpu, memory] = COMPARED;
        let sums = [
            self.chunk.pod_sums_as_floats(cluster_state, cpu, sum, cpu_room)?,
            self.chunk.pod_sums_as_floats(cluster_state, memory, sum, memory_room)?,
        ];
        Some([self.capacities, self.reciprocals.unwrap_or([&NO_RECIPROCALS; 2]), sums])
    }
}

kernel! {
    /// True if all floats, which are small, are integers.
    fn are_integers / are_integers_portable(amounts: &ChunkScores, lanes: usize) -> bool {
        let amounts = amounts.iter().take(lanes);
        amounts.fold(true, |all, amount| {
            all & (floor(*amount) == *amount)
        })
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

/// Allocatable amounts, their reciprocals and what is used of one resource, over the places of a block.
type ResourceBlock<'k> = [&'k BlockPlaces; 3];

/// Blocks of cpu and memory.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn blocks_of<'k>(columns: &[[&'k ChunkScores; 2]; 3], number: usize) -> [ResourceBlock<'k>; 2] {
    let [
        [cpu, memory],
        [cpu_reciprocals, memory_reciprocals],
        [used_cpu, used_memory],
    ] = *columns;
    let block = |column: &'k ChunkScores| block_of(column, number);
    [
        [cpu, cpu_reciprocals, used_cpu].map(block),
        [memory, memory_reciprocals, used_memory].map(block),
    ]
}

/// Amounts of one place.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[expect(clippy::indexing_slicing, reason = "offsets are those of a block")]
#[inline(always)]
fn amounts_at([capacities, reciprocals, used]: &ResourceBlock<'_>, offset: usize) -> [f64; 3] {
    [capacities[offset], reciprocals[offset], floor(used[offset])]
}

kernel! {
    /// Fills in least and, with `MOST`, most requested, like [`compare`].
    fn compare_floats / compare_floats_portable<const MOST: bool, const KNOWN: bool>(
        columns: [[&ChunkScores; 2]; 3],
        requests: [f64; 2],
        lanes: usize,
        least: &mut ChunkScores,
        most: &mut ChunkScores,
    ) {
        let blocks = least.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut().zip(most.as_chunks_mut::<BLOCK_SIZE>().0);
        for (number, (least, most)) in blocks.enumerate().take(lanes.div_ceil(BLOCK_SIZE)) {
            let resources = blocks_of(&columns, number);
            for (offset, (least, most)) in least.iter_mut().zip(most).enumerate() {
                let (mut free, mut taken, mut count) = (0.0, 0.0, 0.0);
                for (resource, request) in resources.iter().zip(requests) {
                    let [capacity, reciprocal, used] = amounts_at(resource, offset);
                    let total = used + request;
                    let left = if capacity > total { capacity - total } else { 0.0 };
                    free += floor(share::<FUSED, KNOWN>(left * 100.0, capacity, reciprocal));
                    if MOST {
                        let held = if capacity > total { total } else { capacity };
                        taken += floor(share::<FUSED, KNOWN>(held * 100.0, capacity, reciprocal));
                    }
                    count += if capacity > 0.0 { 1.0 } else { 0.0 };
                }
                let part = if count > 1.0 { 0.5 } else { 1.0 };
                *least = floor(free * part);
                if MOST {
                    *most = floor(taken * part);
                }
            }
        }
    }
}

kernel! {
    /// Fills in the balance of cpu and memory, like [`balance`].
    fn balance_floats / balance_floats_portable<const KNOWN: bool>(
        columns: [[&ChunkScores; 2]; 3],
        requests: [f64; 2],
        lanes: usize,
        scores: &mut ChunkScores,
    ) {
        let [cpu_request, memory_request] = requests;
        let blocks = scores.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut();
        for (number, scores) in blocks.enumerate().take(lanes.div_ceil(BLOCK_SIZE)) {
            let [cpu, memory] = blocks_of(&columns, number);
            for (offset, score) in scores.iter_mut().enumerate() {
                let fractions = |[capacity, reciprocal, used]: [f64; 3], request: f64| {
                    let fraction = |used: f64| {
                        let fraction = share::<FUSED, KNOWN>(used, capacity, reciprocal);
                        if fraction > 1.0 { 1.0 } else { fraction }
                    };
                    [fraction(used + request), fraction(used)]
                };
                let (cpu, memory) = (amounts_at(&cpu, offset), amounts_at(&memory, offset));
                let has_cpu = if cpu[0] > 0.0 { 0.5 } else { 0.0 };
                let half_if_both = if memory[0] > 0.0 { has_cpu } else { 0.0 };
                let [cpu, cpu_before] = fractions(cpu, cpu_request);
                let [memory, memory_before] = fractions(memory, memory_request);
                let balance = |one: f64, other: f64| floor((1.0 - ((one - other) * half_if_both).abs()) * 100.0);
                let half = (50.0 + balance(cpu, memory) - balance(cpu_before, memory_before)) * 0.5;
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
        let requests = self.requests.map(|request| request as f64);
        let mut room = [[0.0; CHUNK_SIZE]; 2];
        let Some(columns) = floats.with_sums(cluster_state, PodSum::NonzeroRequests, &mut room) else {
            return false;
        };
        let mut unread = [0.0; CHUNK_SIZE];
        match (floats.reciprocals.is_some(), most) {
            (true, None) => compare_floats::<false, true>(columns, requests, floats.lanes, least, &mut unread),
            (true, Some(most)) => compare_floats::<true, true>(columns, requests, floats.lanes, least, most),
            (false, None) => compare_floats::<false, false>(columns, requests, floats.lanes, least, &mut unread),
            (false, Some(most)) => compare_floats::<true, false>(columns, requests, floats.lanes, least, most),
        }
        true
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
        if self.device.is_some() || !self.requests.iter().all(|request| is_small_request(*request)) {
            return false;
        }
        let requests = self.requests.map(|request| request as f64);
        let mut room = [[0.0; CHUNK_SIZE]; 2];
        let Some(columns) = floats.with_sums(cluster_state, PodSum::Requests, &mut room) else {
            return false;
        };
        if floats.reciprocals.is_some() {
            balance_floats::<true>(columns, requests, floats.lanes, scores);
        } else {
            balance_floats::<false>(columns, requests, floats.lanes, scores);
        }
        true
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
    type CompareKernel = fn([[&ChunkScores; 2]; 3], [f64; 2], usize, &mut ChunkScores, &mut ChunkScores);
    type BalanceKernel = fn([[&ChunkScores; 2]; 3], [f64; 2], usize, &mut ChunkScores);

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
            capacities in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_i64), 1_i64..100, 1_i64..1 << 45], CHUNK_SIZE), 2),
            used in prop::collection::vec(prop::collection::vec(prop_oneof![0_i64..100, 0_i64..1 << 45], CHUNK_SIZE), 2),
            requests in [0_i64..1 << 45, 0_i64..1 << 20],
            lanes in prop_oneof![Just(CHUNK_SIZE), 0..CHUNK_SIZE],
        ) {
            let own = [floats(&capacities[0]), floats(&capacities[1])];
            // Amounts with fractions count as the integers below.
            let held = [floats(&used[0]), floats(&used[1]).map(|amount| amount + 0.25)];
            let reciprocals = own.map(|own| own.map(|own| reciprocal(own).unwrap()));
            let columns = [[&own[0], &own[1]], [&reciprocals[0], &reciprocals[1]], [&held[0], &held[1]]];
            let small = requests.map(|request| request as f64);
            let whole = [integers(&capacities[0]), integers(&capacities[1])];
            let taken = [integers(&used[0]), integers(&used[1])];
            let (mut least, mut most, mut balanced) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE]);
            compare::<true>(&whole, &taken, small, &mut least, &mut most);
            let none = [0; CHUNK_SIZE];
            let pair = [(&whole[0], &taken[0], requests[0]), (&whole[1], &taken[1], requests[1])];
            balance::<false>(pair, (&none, &none, 0), &mut balanced);
            let compares: [CompareKernel; 4] = [
                compare_floats::<true, true>,
                compare_floats::<true, false>,
                compare_floats_portable::<false, true, true>,
                compare_floats_portable::<true, true, true>,
            ];
            for kernel in compares {
                let (mut own_least, mut own_most) = ([0.0; CHUNK_SIZE], [0.0; CHUNK_SIZE]);
                kernel(columns, small, lanes, &mut own_least, &mut own_most);
                prop_assert_eq!(&own_least[..lanes], &least[..lanes]);
                prop_assert_eq!(&own_most[..lanes], &most[..lanes]);
            }
            let balances: [BalanceKernel; 4] = [
                balance_floats::<true>,
                balance_floats::<false>,
                balance_floats_portable::<false, true>,
                balance_floats_portable::<true, true>,
            ];
            for kernel in balances {
                let mut scores = [0.0; CHUNK_SIZE];
                kernel(columns, small, lanes, &mut scores);
                prop_assert_eq!(&scores[..lanes], &balanced[..lanes]);
            }
        }
    }
}
