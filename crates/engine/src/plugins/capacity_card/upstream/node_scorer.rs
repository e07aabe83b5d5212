//! Scores of nodes under the rule of the reference: by the first acceptable card that a node has.

use crate::cards::NodeCards;
use crate::model::{CHUNK_SIZE, NodeChunk, ResourceAmounts, ResourceTable, TextMap};
use crate::plugin::{ChunkScores, NodeScorer};
use crate::plugins::capacity_card::node_order;
use crate::policy::Compatibility;

/// Scores nodes by the first acceptable card that they have.
pub(super) struct CardScorer<'a> {
    /// Names of the cards, joined.
    pub(super) name: &'a str,
    pub(super) weight: f64,
    pub(super) resources: &'a ResourceTable,
}

impl NodeScorer for CardScorer<'_> {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK_SIZE];
        // Nodes of one pool have the same labels and the same amounts: each kind is looked into once.
        let mut kinds: Vec<(&TextMap, &ResourceAmounts, f64)> = Vec::new();
        for offset in chunk.live().iter() {
            let (Some(entry), Some(score)) = (chunk.entry(offset), scores.get_mut(offset)) else {
                continue;
            };
            let record = &entry.record;
            let known = kinds
                .iter()
                .find(|(labels, allocatable, _)| **labels == record.labels && **allocatable == record.allocatable);
            *score = if let Some((_, _, score)) = known {
                *score
            } else {
                let cards = NodeCards::of(record, self.resources, Compatibility::UPSTREAM);
                let own = node_order(self.name, Some(&cards), self.weight);
                kinds.push((&record.labels, &record.allocatable, own));
                own
            };
        }
    }
}
