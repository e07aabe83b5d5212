//! Score of the nodes for one task: tasks of its bucket that are there or fit there, and tasks that it is kept from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::buckets::TaskBucket;
use crate::model::{ChunkColumn, ClusterState, NodeChunk, NodeVector, ResourceAmounts, ResourceId, TaskRecord};
use crate::plugin::{ChunkScores, NodeScorer};

/// Score of a node for all tasks of the largest bucket, times the weight.
const MOST: f64 = 100.0;

/// Amounts of the nodes of a chunk that are idle or being released.
struct ChunkRooms(Vec<(ResourceId, ChunkColumn)>);

impl ChunkRooms {
    fn of(chunk: &NodeChunk) -> Self {
        let room = |id| {
            let (mut room, releasing) = (chunk.idle(id), chunk.column(id, NodeVector::Releasing));
            room.present = room.present.or(&releasing.present);
            for (room, releasing) in room.values.iter_mut().zip(&releasing.values) {
                *room += releasing;
            }
            (id, room)
        };
        Self(chunk.resources().map(room).collect())
    }

    fn at(&self, offset: usize) -> NodeRoom {
        let rooms = self.0.iter();
        NodeRoom(rooms.filter_map(|(id, room)| Some((*id, room.get(offset)?))).collect())
    }
}

/// Amounts of one node.
struct NodeRoom(BTreeMap<ResourceId, f64>);

impl NodeRoom {
    /// True if no amount is below a request, and none of a resource other than cpu and memory is negative.
    fn may_hold(&self, requests: &ResourceAmounts) -> bool {
        let is_short = |(id, amount): (ResourceId, i64)| {
            let room = self.0.get(&id);
            room.map_or(amount > 0 || id > ResourceId::MEMORY, |room| *room < amount as f64)
        };
        let is_negative = |(id, room): (&ResourceId, &f64)| *id > ResourceId::MEMORY && *room < 0.0;
        !requests.iter().any(is_short) && !self.0.iter().any(is_negative)
    }

    fn holds(&self, request: &BTreeMap<ResourceId, i128>) -> bool {
        let fits = |(id, amount): (&ResourceId, &i128)| *amount as f64 <= self.0.get(id).copied().unwrap_or(0.0);
        request.iter().all(fits)
    }
}

/// Scorer of one task.
pub(super) struct BucketScorer<'a> {
    pub(super) cluster_state: &'a ClusterState,
    pub(super) bucket: &'a TaskBucket,
    pub(super) task: &'a TaskRecord,
    /// Scores of nodes with tasks of the job.
    pub(super) node_scores: BTreeMap<Arc<str>, i64>,
    /// Factor of the score.
    pub(super) weight: i64,
    /// Number of tasks of the largest bucket.
    pub(super) max_size: i64,
}

impl BucketScorer<'_> {
    fn score_of(&self, node: &str, room: &NodeRoom) -> f64 {
        if !room.may_hold(&self.task.requests) {
            return 0.0;
        }
        let own = self.node_scores.get(node).copied().unwrap_or(0);
        let score = own + i64::try_from(self.bucket.waiting.len()).unwrap_or(i64::MAX) - self.left_out(room);
        score.saturating_mul(self.weight) as f64 * MOST / self.max_size.max(1) as f64
    }

    /// Number of waiting tasks of the bucket, other than the task itself, that have to be left out until the rest fits, in the
    /// order of their names.
    fn left_out(&self, room: &NodeRoom) -> i64 {
        let mut rest = self.bucket.request.clone();
        let mut left_out = 0;
        let mut others = self.bucket.waiting.iter().filter(|(name, _)| **name != self.task.name);
        while !room.holds(&rest) {
            let Some((_, requests)) = others.next() else { break };
            left_out += 1;
            for (id, amount) in requests.iter() {
                *rest.entry(id).or_default() -= i128::from(amount);
            }
        }
        left_out
    }
}

impl NodeScorer for BucketScorer<'_> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let rooms = ChunkRooms::of(chunk);
        for (offset, score) in parts.iter_mut().flatten().enumerate() {
            let entry = chunk.slot(offset).and_then(|slot| self.cluster_state.node(slot));
            *score = entry.map_or(0.0, |entry| self.score_of(&entry.record.name, &rooms.at(offset)));
        }
    }
}
