//! Scores of nodes under the rule of the reference: by the first acceptable card that a node has.

use smallvec::SmallVec;

use crate::cards::{NodeCards, is_card_amount, is_card_label};
use crate::model::{CHUNK_SIZE, NodeChunk, NodeRecord, ResourceId, ResourceTable};
use crate::plugin::{ChunkScores, HookNumbers, NodeScorer};
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
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK_SIZE];
        // Nodes of one pool have the same cards: each kind is looked into once.
        let mut kinds: Vec<(CardRecord<'_>, f64)> = Vec::new();
        for offset in chunk.live().iter() {
            let (Some(entry), Some(score)) = (chunk.entry(offset), scores.get_mut(offset)) else {
                continue;
            };
            let kind = CardRecord::of(&entry.record);
            *score = if let Some((_, known)) = kinds.iter().find(|(own, _)| *own == kind) {
                *known
            } else {
                let cards = NodeCards::of(&entry.record, self.resources, Compatibility::UPSTREAM);
                let own = node_order(self.name, Some(&cards), self.weight);
                kinds.push((kind, own));
                own
            };
        }
    }

    /// The names come from the class, and the weight from the policy.
    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }
}

/// Parts of a node's record that tell its cards.
#[derive(PartialEq)]
struct CardRecord<'a> {
    labels: SmallVec<[(&'a str, &'a str); 4]>,
    amounts: SmallVec<[(ResourceId, i64); 4]>,
}

impl<'a> CardRecord<'a> {
    fn of(record: &'a NodeRecord) -> Self {
        let labels = record.labels.iter().filter(|(key, _)| is_card_label(key));
        let amounts = record.allocatable.iter().filter(|(id, _)| is_card_amount(*id));
        Self {
            labels: labels.map(|(key, text)| (&**key, &**text)).collect(),
            amounts: amounts.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TextMap;

    #[test]
    fn other_labels_and_amounts_tell_no_cards() {
        let labels = [
            ("huawei.com/npu.count", "8"),
            ("huawei.com/npu.memory", "64"),
            ("huawei.com/npu.product", "Ascend"),
            ("kubernetes.io/hostname", "n"),
            ("nvidia.com/gpu.count", "4"),
            ("nvidia.com/gpu.memory", "81920"),
            ("nvidia.com/gpu.product", "H100"),
            ("nvidia.com/gpu.replicas", "2"),
            ("zone", "a"),
        ];
        let mut resources = ResourceTable::default();
        let names = [
            "huawei.com/npu",
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
        ];
        let ids = names.map(|name| resources.intern(name, 100).unwrap());
        let cards = |record: &NodeRecord| NodeCards::of(record, &resources, Compatibility::UPSTREAM);
        for subset in 0_u32..1 << labels.len() {
            let labels = (0..).zip(labels).filter(|(place, _)| subset >> place & 1 == 1);
            let labels: Vec<_> = labels.map(|(_, (key, text))| (key.into(), text.into())).collect();
            let amounts = ids.map(|id| (id, 2_000)).into_iter();
            let record = NodeRecord {
                labels: TextMap::from(labels),
                allocatable: amounts.chain([(ResourceId::CPU, 1), (ResourceId::PODS, 9)]).collect(),
                ..NodeRecord::default()
            };
            let mut elsewhere = record.clone();
            elsewhere.allocatable.set(ResourceId::CPU, 2);
            let kind = CardRecord::of(&record);
            let chosen: Vec<_> = kind
                .labels
                .iter()
                .map(|(key, text)| ((*key).into(), (*text).into()))
                .collect();
            let alone = NodeRecord {
                labels: TextMap::from(chosen),
                allocatable: kind.amounts.iter().copied().collect(),
                ..NodeRecord::default()
            };
            assert_eq!(cards(&alone), cards(&record), "{:?}", record.labels);
            assert!(CardRecord::of(&elsewhere) == kind);
        }
    }
}
