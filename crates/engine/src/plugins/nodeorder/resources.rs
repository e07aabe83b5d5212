//! Parts by resources: least and most requested, and balanced allocation.

use super::MAX_SCORE;
use crate::model::{CHUNK_SIZE, ClusterState, IntegerColumn, NodeChunk, PodSum, ResourceId, TaskClass, WholeVector};
use crate::policy::Compatibility;

/// Resources that least and most requested compare, with equal weights.
const COMPARED: [ResourceId; 2] = [ResourceId::CPU, ResourceId::MEMORY];

/// Device that balanced allocation compares beside cpu and memory.
const DEVICE: &str = "nvidia.com/gpu";

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

/// Allocatable amounts of a chunk in Kubernetes' units.
fn allocatable(chunk: &NodeChunk, id: ResourceId) -> IntegerColumn {
    chunk.integer_column(id, WholeVector::Allocatable, |wide| {
        i64::try_from(wide).unwrap_or(i64::MAX)
    })
}

/// Non-zero requests of a class, by which it competes for cpu and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NonzeroDemand {
    requests: [i64; 2],
    arithmetic: ProductArithmetic,
}

impl NonzeroDemand {
    pub(super) fn of(class: &TaskClass, compatibility: Compatibility) -> Self {
        Self {
            requests: class.container_nonzero,
            arithmetic: ProductArithmetic::of(compatibility),
        }
    }

    /// Fills in least and most requested for a chunk.
    pub(super) fn score(
        &self,
        cluster_state: &ClusterState,
        chunk: &NodeChunk,
        least: &mut IntegerColumn,
        most: &mut IntegerColumn,
    ) {
        let mut counts = [0_i64; CHUNK_SIZE];
        least.fill(0);
        most.fill(0);
        for (id, request) in COMPARED.into_iter().zip(self.requests) {
            let capacities = allocatable(chunk, id);
            let used = chunk.pod_sums(cluster_state, id, PodSum::NonzeroRequests);
            let places = least.iter_mut().zip(most.iter_mut()).zip(&mut counts);
            for (((least, most), count), (&capacity, &used)) in places.zip(capacities.iter().zip(&used)) {
                if capacity <= 0 {
                    continue;
                }
                let total = used.saturating_add(request);
                if total <= capacity {
                    *least += self.arithmetic.percent(capacity - total, capacity);
                }
                *most += self.arithmetic.percent(total.min(capacity), capacity);
                *count += 1;
            }
        }
        for ((least, most), count) in least.iter_mut().zip(most.iter_mut()).zip(counts) {
            *least /= count.max(1);
            *most /= count.max(1);
        }
    }
}

/// Requests of a class whose balance is compared.
#[derive(Clone, Debug)]
pub(super) struct BalancedDemand {
    /// Resources with requests in Kubernetes' units; the device only if it is requested.
    requests: Vec<(ResourceId, i64)>,
}

impl BalancedDemand {
    /// Demand of a class; `None`: it requests none of the compared resources.
    pub(super) fn of(cluster_state: &ClusterState, class: &TaskClass) -> Option<Self> {
        let device = cluster_state.resources().get(DEVICE);
        let device = device.filter(|id| class.kubernetes_request(*id) > 0);
        let ids = COMPARED.into_iter().chain(device);
        let requests: Vec<(ResourceId, i64)> = ids.map(|id| (id, class.kubernetes_request(id))).collect();
        let requests_any = requests.iter().any(|(_, request)| *request > 0);
        requests_any.then_some(Self { requests })
    }

    /// Fills in the score of each node of a chunk.
    pub(super) fn score(&self, cluster_state: &ClusterState, chunk: &NodeChunk, scores: &mut IntegerColumn) {
        let columns: Vec<(IntegerColumn, IntegerColumn, i64)> = self
            .requests
            .iter()
            .map(|&(id, request)| {
                let used = chunk.pod_sums(cluster_state, id, PodSum::Requests);
                (allocatable(chunk, id), used, request)
            })
            .collect();
        for (offset, score) in scores.iter_mut().enumerate() {
            let at = |column: &IntegerColumn| column.get(offset).copied().unwrap_or(0);
            let (mut with, mut without) = (Fractions::default(), Fractions::default());
            for (capacities, used, request) in &columns {
                let (capacity, used) = (at(capacities), at(used));
                if capacity > 0 {
                    with.push(used.saturating_add(*request), capacity);
                    without.push(used, capacity);
                }
            }
            let gain = with.balance() - without.balance();
            *score = MAX_SCORE / 2 + i64::midpoint(MAX_SCORE / 2, gain);
        }
    }
}

/// Used fractions of up to three resources.
#[derive(Clone, Copy, Debug, Default)]
struct Fractions {
    values: [f64; 3],
    count: usize,
}

impl Fractions {
    fn push(&mut self, used: i64, capacity: i64) {
        if let Some(place) = self.values.get_mut(self.count) {
            let fraction = used as f64 / capacity as f64;
            *place = if fraction > 1.0 { 1.0 } else { fraction };
            self.count += 1;
        }
    }

    /// Balance from 0 to 100: 100 less the standard deviation of the fractions, in the reference's order of operations.
    fn balance(&self) -> i64 {
        let [first, second, third] = self.values;
        let deviation = match self.count {
            2 => ((first - second) / 2.0).abs(),
            3 => {
                let mean = (first + second + third) / 3.0;
                let square = |value: f64| (value - mean) * (value - mean);
                ((square(first) + square(second) + square(third)) / 3.0).sqrt()
            }
            _ => 0.0,
        };
        truncate((1.0 - deviation) * MAX_SCORE as f64)
    }
}

/// Integer part of a score from 0 to 100, or of a size in bytes.
#[expect(clippy::cast_possible_truncation, reason = "the reference cuts the fraction off")]
pub(super) fn truncate(value: f64) -> i64 {
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
