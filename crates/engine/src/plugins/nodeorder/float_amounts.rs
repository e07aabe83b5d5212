//! Parts of scores by resources, over columns of floats. Most chunks have all amounts in float columns and need no
//! integers.

use pumice_kernels::requested_floats::{ComparedColumns, balance_floats, compare_floats};

use super::resources::{BalancedDemand, COMPARED, NonzeroDemand};
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, PodSum, SMALL_LIMIT};
use crate::plugin::ChunkScores;

/// Allocatable cpu and memory of the nodes of a chunk, in columns of floats whose integer parts they are, none of them negative
/// or beyond [`SMALL_LIMIT`].
#[derive(Debug)]
pub(super) struct ComparedFloats<'k> {
    chunk: &'k NodeChunk,
    /// Allocatable amounts, integers.
    capacities: [&'k ChunkScores; 2],
    /// Reciprocals of the capacities, if all are exact.
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
    fn columns<'s>(&self, used: [&'s ChunkScores; 2]) -> ComparedColumns<'s>
    where
        'k: 's,
    {
        ComparedColumns {
            capacities: self.capacities,
            reciprocals: self.reciprocals,
            used,
        }
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
            compare_floats(columns, requests, lanes, least, most);
        })
    }
}

impl BalancedDemand {
    /// Fills in the score of each node of a chunk like [`Self::score`]; false: floats do not show all amounts, or the
    /// change by the pod does not count.
    pub(super) fn score_floats(
        &self,
        cluster_state: &ClusterState,
        floats: &ComparedFloats<'_>,
        scores: &mut ChunkScores,
    ) -> bool {
        let device_request = self.device.map_or(0, |(_, request)| request);
        let [cpu, memory] = self.requests;
        let requests = [cpu, memory, device_request];
        if !self.of_change || !requests.iter().all(|request| is_small_request(*request)) {
            return false;
        }
        let (requests, lanes) = (requests.map(|request| request as f64), floats.lanes);
        let Some((id, _)) = self.device else {
            return floats.with_sums(cluster_state, PodSum::Requests, |columns| {
                balance_floats(columns, None, requests, lanes, scores);
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
            balance_floats(columns, Some(device), requests, lanes, scores);
        })
    }
}
