//! Parts by resources: least and most requested, and balanced allocation.

use pumice_kernels::integers::is_small_column;
use pumice_kernels::requested::{balance, compare};

use super::ScoreRules;
use crate::model::{
    CHUNK_SIZE, ClusterState, IntegerColumn, NodeChunk, PodSum, ResourceId, SMALL_LIMIT, TaskClass, WholeVector,
};
use crate::plugin::ChunkScores;
use crate::plugins::integer_arithmetic::IntegerArithmetic;

/// Resources that least and most requested compare, with equal weights.
pub(super) const COMPARED: [ResourceId; 2] = [ResourceId::CPU, ResourceId::MEMORY];

/// Allocatable cpu and memory of a chunk, which several parts read.
pub(super) type ComparedCapacities = [IntegerColumn; 2];

/// Amounts of a chunk in Kubernetes' units.
pub(in crate::plugins) fn allocatable(chunk: &NodeChunk, id: ResourceId) -> IntegerColumn {
    chunk.integer_column(id, WholeVector::Allocatable, |wide| {
        i64::try_from(wide).unwrap_or(i64::MAX)
    })
}

/// Non-zero requests of a class, by which it competes for cpu and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NonzeroDemand {
    pub(super) requests: [i64; 2],
    arithmetic: IntegerArithmetic,
}

impl NonzeroDemand {
    pub(super) fn of(class: &TaskClass, rules: &ScoreRules) -> Self {
        Self {
            requests: class.container_nonzero,
            arithmetic: IntegerArithmetic::of(rules.compatibility),
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
        let are_small = capacities.iter().chain(&used).all(is_small_column)
            && self.requests.iter().all(|request| (0..SMALL_LIMIT).contains(request));
        let requests = self.requests.map(|request| request as f64);
        if are_small {
            compare(capacities, &used, requests, least, most);
        } else {
            self.score_large(capacities, &used, least, most.unwrap_or(&mut [0.0; CHUNK_SIZE]));
        }
    }

    /// Fills in least and most requested where floats skip integers.
    fn score_large(
        &self,
        capacities: &ComparedCapacities,
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
    /// True: the score is that of the change which the pod makes, else of the node with the pod.
    pub(super) of_change: bool,
}

impl BalancedDemand {
    /// Demand of a class; `None`: it requests none of the compared resources.
    pub(super) fn of(cluster_state: &ClusterState, class: &TaskClass, rules: &ScoreRules) -> Option<Self> {
        let request = |id: ResourceId| class.kubernetes_request(id);
        let device = rules
            .device
            .as_deref()
            .and_then(|name| cluster_state.resources().get(name))
            .map(|id| (id, request(id)));
        let of_containers = class
            .container_requests
            .filter(|_| !rules.release().balances_pod_level_resources);
        let own = Self {
            requests: of_containers.unwrap_or_else(|| COMPARED.map(request)),
            device: device.filter(|(_, request)| *request > 0),
            of_change: rules.release().scores_balance_change,
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
        let [cpu, memory] = capacities;
        let used = COMPARED.map(sums);
        let [used_cpu, used_memory] = &used;
        let [cpu_request, memory_request] = self.requests;
        let pair = [(cpu, used_cpu, cpu_request), (memory, used_memory, memory_request)];
        match self.device {
            None => balance(pair, None, self.of_change, scores),
            Some((id, request)) => {
                let device = Some((&allocatable(chunk, id), &sums(id), request));
                balance(pair, device, self.of_change, scores);
            }
        }
    }
}

/// Integer part of a score from 0 to 100, or of a size in bytes.
#[expect(clippy::cast_possible_truncation, reason = "the reference cuts the fraction off")]
pub(in crate::plugins) fn truncate(value: f64) -> i64 {
    value as i64
}
