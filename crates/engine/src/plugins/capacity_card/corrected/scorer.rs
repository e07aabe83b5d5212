//! How nodes are scored: by the first acceptable card that they have.

use super::queue_path::QueuePath;
use super::state::CapacityState;
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, TaskClass};
use crate::plugin::{ChunkScores, NodeScorer};
use crate::plugins::capacity_card::{CARD_SEPARATOR, NodeKinds, TaskRequest, rank_score, requested_milli};

/// Scores of the kinds of nodes.
#[derive(Debug)]
pub(super) struct KindScorer<'a> {
    cluster_state: &'a ClusterState,
    kinds: &'a NodeKinds,
    score_by_kind: Vec<f64>,
}

impl CapacityState {
    /// The scorer for a class that may use any of several cards. With `nodeOrderByQuota` cards that the queue may not
    /// give do not count: the others move up, and nodes that have none of them score 0.
    pub(super) fn kind_scorer<'a>(
        &'a self,
        cluster_state: &'a ClusterState,
        class: &TaskClass,
        name: &str,
    ) -> KindScorer<'a> {
        let queue = class.charge.as_ref().map(|charge| &charge.queue);
        let path = queue.filter(|_| self.config.order_by_quota);
        let path = path
            .and_then(|queue| self.queue_path(queue).ok())
            .filter(QueuePath::is_configured);
        let usage = path.as_ref().map(|path| path.usage_for_task());
        let task = TaskRequest::of_class(class);
        let asked = |card: &str| requested_milli(task?, self.cards.resource(card)?.0);
        let left = |card: &&str| match (&usage, asked(card)) {
            (Some(usage), Some(asked)) => usage.card_headroom(card) >= asked,
            (None, _) | (_, None) => true,
        };
        let cards: Vec<&str> = name.split(CARD_SEPARATOR).filter(left).collect();
        let kinds = self.cards.node_kinds();
        let by_kind = kinds.map_kinds(|kind| {
            let has = |card: &&str| kind.iter().any(|(own, _)| **own == **card);
            let rank = cards.iter().position(has);
            rank.map_or(0.0, |rank| rank_score(rank, self.config.node_order_weight))
        });
        KindScorer {
            cluster_state,
            kinds,
            score_by_kind: by_kind,
        }
    }
}

impl NodeScorer for KindScorer<'_> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK_SIZE];
        let column = self.kinds.column(chunk, self.cluster_state);
        for (score, kind) in scores.iter_mut().zip(column.iter()) {
            *score = self.score_by_kind.get(*kind as usize).copied().unwrap_or(0.0);
        }
    }
}
