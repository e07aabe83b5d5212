//! Nodes by the kinds of cards that they have: what filters and scores look up per slot.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cards::NodeCards;
use crate::held_bytes::held_bytes;
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, NodeSlot, ResourceId};

/// The cards of a node with their resources, sorted; how many there are does not matter here.
pub(super) type CardSet = Vec<(Arc<str>, ResourceId)>;

/// No kind: there is no node at the slot.
const NO_KIND: u32 = u32::MAX;

/// The kind of every node. A clone costs a pointer per chunk and per kind.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeKinds {
    /// By number, with the nodes of the kind; one without nodes gives its number away.
    kinds: Vec<(Arc<CardSet>, u32)>,
    numbers: BTreeMap<Arc<CardSet>, u32>,
    /// Numbers by slot, chunk by chunk.
    columns: Vec<Arc<[u32; CHUNK_SIZE]>>,
}

held_bytes! { NodeKinds { kinds, columns, numbers } }

/// The cards of a node.
pub(super) fn card_set(cards: &NodeCards) -> CardSet {
    let cards = cards.cards.iter();
    cards.map(|(name, card)| (Arc::clone(name), card.resource)).collect()
}

impl NodeKinds {
    /// Puts a node at a slot, in the place of what stood there; `None` takes it away.
    pub(super) fn set_node(&mut self, slot: NodeSlot, cards: Option<CardSet>) {
        let (chunk, offset) = (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
        let before = self.number_at(chunk, offset);
        if let (Some(cards), Some((same, _))) = (&cards, self.kinds.get(before as usize))
            && **same == *cards
        {
            return;
        }
        // First, so that its number may be taken.
        if let Some((set, nodes)) = self.kinds.get_mut(before as usize) {
            *nodes = nodes.saturating_sub(1);
            if *nodes == 0 {
                self.numbers.remove(set);
            }
        }
        let after = cards.map_or(NO_KIND, |cards| self.assign_number(cards));
        if before == after {
            return;
        }
        while self.columns.len() <= chunk {
            self.columns.push(Arc::new([NO_KIND; CHUNK_SIZE]));
        }
        let column = self.columns.get_mut(chunk).map(Arc::make_mut);
        if let Some(place) = column.and_then(|column| column.get_mut(offset)) {
            *place = after;
        }
    }

    /// The number of a kind, with one node more.
    fn assign_number(&mut self, cards: CardSet) -> u32 {
        let known = self.numbers.get(&cards).copied();
        let free = || self.kinds.iter().position(|(_, nodes)| *nodes == 0);
        let at = match known {
            Some(number) => number as usize,
            None => free().unwrap_or(self.kinds.len()),
        };
        let number = u32::try_from(at).unwrap_or(NO_KIND);
        if known.is_none() {
            let cards = Arc::new(cards);
            self.numbers.insert(Arc::clone(&cards), number);
            match self.kinds.get_mut(at) {
                Some(place) => *place = (cards, 0),
                None => self.kinds.push((cards, 0)),
            }
        }
        if let Some((_, nodes)) = self.kinds.get_mut(at) {
            *nodes += 1;
        }
        number
    }

    fn number_at(&self, chunk: usize, offset: usize) -> u32 {
        let column = self.columns.get(chunk);
        column.and_then(|column| column.get(offset)).copied().unwrap_or(NO_KIND)
    }

    /// Something of every kind, by its number.
    pub(super) fn map_kinds<T>(&self, of: impl FnMut(&CardSet) -> T) -> Vec<T> {
        let sets = self.kinds.iter().map(|(set, _)| &**set);
        sets.map(of).collect()
    }

    /// True if some node has a card of a resource.
    pub(super) fn has_resource(&self, id: ResourceId) -> bool {
        let mut cards = self.kinds.iter().flat_map(|(set, _)| set.iter());
        cards.any(|(_, own)| *own == id)
    }

    /// The numbers of a chunk's nodes. Those of a chunk that belongs to no cluster state are looked up one by one.
    pub(super) fn column(&self, chunk: &NodeChunk, cluster_state: &ClusterState) -> Cow<'_, [u32; CHUNK_SIZE]> {
        if let Some(column) = self.columns.get(chunk.number() as usize) {
            return Cow::Borrowed(column);
        }
        let mut column = [NO_KIND; CHUNK_SIZE];
        for offset in chunk.live().iter() {
            let named = || {
                chunk
                    .entry(offset)
                    .and_then(|entry| cluster_state.slot_of(&entry.record.name))
            };
            let slot = chunk.slot(offset).or_else(named);
            if let (Some(slot), Some(place)) = (slot, column.get_mut(offset)) {
                *place = self.number_at(slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
            }
        }
        Cow::Owned(column)
    }

    /// The cards at a slot.
    #[cfg(test)]
    pub(super) fn set_at(&self, slot: NodeSlot) -> Option<&CardSet> {
        let number = self.number_at(slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
        self.kinds.get(number as usize).map(|(set, _)| &**set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(card: &str) -> CardSet {
        vec![(Arc::from(card), ResourceId::PODS)]
    }

    #[test]
    fn kind_numbers_are_reused() {
        let mut kinds = NodeKinds::default();
        for (slot, card) in [(0, "A"), (300, "A"), (1, "B"), (0, "B"), (300, "C")] {
            kinds.set_node(slot, Some(set(card)));
        }
        assert_eq!(kinds.kinds.len(), 2, "{kinds:?}");
        kinds.set_node(1, None);
        let at = |slot| kinds.set_at(slot).cloned();
        assert_eq!(
            (at(0), at(300), at(1), at(999)),
            (Some(set("B")), Some(set("C")), None, None)
        );
    }
}
