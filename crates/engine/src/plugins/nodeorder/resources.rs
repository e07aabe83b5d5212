//! Parts by resources: least and most requested, and balanced allocation.

use super::{MAX_SCORE, ScoreRules};
use crate::kernel::{floor, kernel};
use crate::model::{
    CHUNK_SIZE, ClusterState, IntegerColumn, NodeChunk, PodSum, ResourceId, SMALL_LIMIT, TaskClass, WholeVector,
};
use crate::plugin::ChunkScores;
use crate::policy::Compatibility;

/// Resources that least and most requested compare, with equal weights.
pub(super) const COMPARED: [ResourceId; 2] = [ResourceId::CPU, ResourceId::MEMORY];

/// Integer arithmetic of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProductArithmetic {
    /// Products wrap at 64 bits, as in the reference.
    Wrapping,
    /// Products are exact.
    Exact,
}

impl ProductArithmetic {
    pub(super) fn of(compatibility: Compatibility) -> Self {
        match compatibility {
            Compatibility::Upstream => Self::Wrapping,
            Compatibility::Corrected => Self::Exact,
        }
    }

    /// Hundredfold amount divided by a capacity above 0, cut toward 0.
    fn percent(self, amount: i64, capacity: i64) -> i64 {
        match (self, amount.checked_mul(MAX_SCORE)) {
            (_, Some(product)) => product / capacity,
            (Self::Wrapping, None) => amount.wrapping_mul(MAX_SCORE) / capacity,
            (Self::Exact, None) => {
                let wide = i128::from(amount) * i128::from(MAX_SCORE) / i128::from(capacity);
                i64::try_from(wide).unwrap_or(i64::MAX)
            }
        }
    }
}

/// Amounts of a chunk in Kubernetes' units.
pub(in crate::plugins) fn allocatable(chunk: &NodeChunk, id: ResourceId) -> IntegerColumn {
    chunk.integer_column(id, WholeVector::Allocatable, |wide| {
        i64::try_from(wide).unwrap_or(i64::MAX)
    })
}

/// Allocatable cpu and memory of a chunk, which several parts read.
#[derive(Debug)]
pub(super) struct ComparedCapacities([IntegerColumn; 2]);

impl ComparedCapacities {
    pub(super) fn of(chunk: &NodeChunk) -> Self {
        Self(COMPARED.map(|id| allocatable(chunk, id)))
    }
}

kernel! {
    /// True if no amount is negative or beyond [`SMALL_LIMIT`].
    fn are_small / are_small_portable(amounts: &IntegerColumn) -> bool {
        amounts.iter().fold(0, |all, amount| all | *amount) & !(SMALL_LIMIT - 1) == 0
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn at(amounts: &IntegerColumn, offset: usize) -> f64 {
    amounts.get(offset).copied().unwrap_or(0) as f64
}

kernel! {
    /// Fills in least and, with `MOST`, most requested. Amounts are small: a quotient of exact floats below 2^53 is rounded to
    /// an integer only if it is one.
    pub(super) fn compare / compare_portable<const MOST: bool>(
        capacities: &[IntegerColumn; 2],
        used: &[IntegerColumn; 2],
        requests: [f64; 2],
        least: &mut ChunkScores,
        most: &mut ChunkScores,
    ) {
        let ([cpu, memory], [used_cpu, used_memory]) = (capacities, used);
        for (offset, (least, most)) in least.iter_mut().zip(most).enumerate() {
            let (mut free, mut taken, mut count) = (0.0, 0.0, 0.0);
            for (capacities, used, request) in [(cpu, used_cpu, requests[0]), (memory, used_memory, requests[1])] {
                let (capacity, total) = (at(capacities, offset), at(used, offset) + request);
                let (divisor, one) = if capacity > 0.0 { (capacity, 1.0) } else { (1.0, 0.0) };
                let left = if capacity > total { capacity - total } else { 0.0 };
                free += floor(left * 100.0 / divisor);
                if MOST {
                    let held = if capacity > total { total } else { capacity };
                    taken += floor(held * 100.0 / divisor);
                }
                count += one;
            }
            let share = if count > 1.0 { 0.5 } else { 1.0 };
            *least = floor(free * share);
            *most = floor(taken * share);
        }
    }
}

/// Non-zero requests of a class, by which it competes for cpu and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NonzeroDemand {
    pub(super) requests: [i64; 2],
    arithmetic: ProductArithmetic,
}

impl NonzeroDemand {
    pub(super) fn of(class: &TaskClass, rules: &ScoreRules) -> Self {
        Self {
            requests: class.container_nonzero,
            arithmetic: ProductArithmetic::of(rules.compatibility),
        }
    }

    /// Fills in least and most requested for a chunk; most only if it is wanted.
    pub(super) fn score(
        &self,
        cluster_state: &ClusterState,
        chunk: &NodeChunk,
        capacities: &ComparedCapacities,
        least: &mut ChunkScores,
        most: Option<&mut ChunkScores>,
    ) {
        let used = COMPARED.map(|id| chunk.pod_sums(cluster_state, id, PodSum::NonzeroRequests));
        let are_small = capacities.0.iter().chain(&used).all(are_small)
            && self.requests.iter().all(|request| (0..SMALL_LIMIT).contains(request));
        let requests = self.requests.map(|request| request as f64);
        let mut unread = [0.0; CHUNK_SIZE];
        match (are_small, most) {
            (true, None) => compare::<false>(&capacities.0, &used, requests, least, &mut unread),
            (true, Some(most)) => compare::<true>(&capacities.0, &used, requests, least, most),
            (false, most) => self.score_large(&capacities.0, &used, least, most.unwrap_or(&mut unread)),
        }
    }

    /// Fills in least and most requested where floats skip integers.
    fn score_large(
        &self,
        capacities: &[IntegerColumn; 2],
        used: &[IntegerColumn; 2],
        least: &mut ChunkScores,
        most: &mut ChunkScores,
    ) {
        for (offset, (least, most)) in least.iter_mut().zip(most).enumerate() {
            let (mut free, mut taken, mut count) = (0, 0, 0);
            for ((capacities, used), request) in capacities.iter().zip(used).zip(self.requests) {
                let capacity = capacities.get(offset).copied().unwrap_or(0);
                if capacity <= 0 {
                    continue;
                }
                let total = used.get(offset).copied().unwrap_or(0).saturating_add(request);
                if total <= capacity {
                    free += self.arithmetic.percent(capacity - total, capacity);
                }
                taken += self.arithmetic.percent(total.min(capacity), capacity);
                count += 1;
            }
            *least = (free / count.max(1)) as f64;
            *most = (taken / count.max(1)) as f64;
        }
    }
}

/// Requests of a class whose balance is compared.
#[derive(Clone, Debug)]
pub(super) struct BalancedDemand {
    /// Requests of cpu and memory in Kubernetes' units.
    pub(super) requests: [i64; 2],
    /// Device and its request, if it is requested.
    pub(super) device: Option<(ResourceId, i64)>,
}

impl BalancedDemand {
    /// Demand of a class; `None`: it requests none of the compared resources.
    pub(super) fn of(cluster_state: &ClusterState, class: &TaskClass, device: Option<&str>) -> Option<Self> {
        let request = |id: ResourceId| class.kubernetes_request(id);
        let device = device
            .and_then(|name| cluster_state.resources().get(name))
            .map(|id| (id, request(id)));
        let own = Self {
            requests: COMPARED.map(request),
            device: device.filter(|(_, request)| *request > 0),
        };
        let requests_any = own.device.is_some() || own.requests.iter().any(|request| *request > 0);
        requests_any.then_some(own)
    }

    /// Fills in the score of each node of a chunk.
    pub(super) fn score(
        &self,
        cluster_state: &ClusterState,
        chunk: &NodeChunk,
        capacities: &ComparedCapacities,
        scores: &mut ChunkScores,
    ) {
        let sums = |id: ResourceId| chunk.pod_sums(cluster_state, id, PodSum::Requests);
        let [cpu, memory] = &capacities.0;
        let used = COMPARED.map(sums);
        let [used_cpu, used_memory] = &used;
        let [cpu_request, memory_request] = self.requests;
        let pair = [(cpu, used_cpu, cpu_request), (memory, used_memory, memory_request)];
        let none = [0; CHUNK_SIZE];
        match self.device {
            None => balance::<false>(pair, (&none, &none, 0), scores),
            Some((id, request)) => balance::<true>(pair, (&allocatable(chunk, id), &sums(id), request), scores),
        }
    }
}

/// Capacities, used amounts and the request of one resource.
pub(super) type DemandColumns<'k> = (&'k IntegerColumn, &'k IntegerColumn, i64);

/// Used fractions of a resource with the pod and without it, at most 1, and whether the node has the resource.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn fractions((capacities, used, request): DemandColumns<'_>, offset: usize) -> ([f64; 2], bool) {
    let used = used.get(offset).copied().unwrap_or(0);
    let capacity = at(capacities, offset);
    let exists = capacity > 0.0;
    let divisor = if exists { capacity } else { 1.0 };
    let fraction = |used: i64| {
        let fraction = used as f64 / divisor;
        if fraction > 1.0 { 1.0 } else { fraction }
    };
    ([fraction(used.saturating_add(request)), fraction(used)], exists)
}

/// Balance from 0 to 100: 100 less the standard deviation of the fractions of resources that the node has, in the
/// reference's order of operations.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn balance_of([first, second, third]: [f64; 3], [has_first, has_second, has_third]: [bool; 3]) -> f64 {
    let mean = (first + second + third) / 3.0;
    let square = |fraction: f64| (fraction - mean) * (fraction - mean);
    let of_three = ((square(first) + square(second) + square(third)) / 3.0).sqrt();
    let of_two = |one: f64, other: f64| ((one - other) / 2.0).abs();
    let deviation = match (has_first, has_second, has_third) {
        (true, true, true) => of_three,
        (true, true, false) => of_two(first, second),
        (true, false, true) => of_two(first, third),
        (false, true, true) => of_two(second, third),
        _ => 0.0,
    };
    floor((1.0 - deviation) * 100.0)
}

kernel! {
    /// Fills in the balance: 50 and half of the gain by the pod, and as much again.
    pub(super) fn balance / balance_portable<const DEVICE: bool>(
        pair: [DemandColumns<'_>; 2],
        device: DemandColumns<'_>,
        scores: &mut ChunkScores,
    ) {
        let [cpu, memory] = pair;
        for (offset, score) in scores.iter_mut().enumerate() {
            let (cpu, has_cpu) = fractions(cpu, offset);
            let (memory, has_memory) = fractions(memory, offset);
            let (device, has_device) = if DEVICE { fractions(device, offset) } else { ([0.0; 2], false) };
            let has = [has_cpu, has_memory, has_device];
            let with = balance_of([cpu[0], memory[0], device[0]], has);
            let without = balance_of([cpu[1], memory[1], device[1]], has);
            let half = (50.0 + with - without) * 0.5;
            *score = if half < 0.0 { 50.0 - floor(-half) } else { 50.0 + floor(half) };
        }
    }
}

/// Integer part of a score from 0 to 100, or of a size in bytes.
#[expect(clippy::cast_possible_truncation, reason = "the reference cuts the fraction off")]
pub(in crate::plugins) fn truncate(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_wrap_only_under_upstream() {
        let (peta, exa) = (1_000_000_000_000_000, 1_000_000_000_000_000_000);
        assert_eq!(ProductArithmetic::Wrapping.percent(200 * peta, exa), 1);
        assert_eq!(ProductArithmetic::Exact.percent(200 * peta, exa), 20);
        assert_eq!(ProductArithmetic::Wrapping.percent(2, 3), 66);
    }
}
