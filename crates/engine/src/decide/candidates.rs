//! Candidate nodes of a query, chunk by chunk.

use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, NodeMask, NodeSlot};

/// Candidates in one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkSlice<'v> {
    /// Slot of the chunk's first place.
    pub(super) first_slot: NodeSlot,
    pub(super) chunk: &'v NodeChunk,
    /// Candidate nodes; each place has a node.
    pub(super) candidates: NodeMask,
}

impl ChunkSlice<'_> {
    /// Appends the slots of the nodes in `among`.
    pub(super) fn push_slots(&self, among: &NodeMask, slots: &mut Vec<NodeSlot>) {
        for (first, mut word) in (self.first_slot..).step_by(64).zip(among.words()) {
            if word == u64::MAX {
                slots.extend(first..first + 64);
                continue;
            }
            while word != 0 {
                slots.push(first + word.trailing_zeros());
                word &= word - 1;
            }
        }
    }

    /// Slot of a place.
    pub(super) fn slot(&self, offset: usize) -> NodeSlot {
        NodeSlot::try_from(offset).map_or(self.first_slot, |offset| self.first_slot + offset)
    }
}

/// Candidate nodes of a query.
#[derive(Clone, Debug)]
pub(super) struct NodeCandidates<'v> {
    /// Slices by slot, none empty.
    pub(super) slices: Vec<ChunkSlice<'v>>,
    /// Queried slots without a node, ascending.
    pub(super) absent: Vec<NodeSlot>,
    /// Order of the caller as (slot, position), by slot; `None`: it is the order of slots.
    order: Option<Vec<(NodeSlot, usize)>>,
}

impl<'v> NodeCandidates<'v> {
    /// All nodes, or those at the given slots.
    pub(super) fn of(cluster_state: &'v ClusterState, slots: Option<&[NodeSlot]>) -> Self {
        let Some(slots) = slots else {
            let parts = (0..)
                .zip(cluster_state.chunks())
                .map(|(number, chunk)| chunk_slice(number, chunk, *chunk.live()));
            return Self {
                slices: parts.filter(|part| !part.candidates.is_empty()).collect(),
                absent: Vec::new(),
                order: None,
            };
        };
        let mut candidates = Self {
            slices: Vec::new(),
            absent: Vec::new(),
            order: None,
        };
        if slots.is_sorted() {
            candidates.add_slots(cluster_state, slots.iter().copied());
        } else {
            let mut order: Vec<(NodeSlot, usize)> = slots.iter().copied().zip(0..).collect();
            order.sort_unstable();
            candidates.add_slots(cluster_state, order.iter().map(|&(slot, _)| slot));
            candidates.order = Some(order);
        }
        candidates
    }

    /// Nodes at these slots, which are ascending.
    pub(super) fn at_slots(cluster_state: &'v ClusterState, slots: impl IntoIterator<Item = NodeSlot>) -> Self {
        let mut candidates = Self {
            slices: Vec::new(),
            absent: Vec::new(),
            order: None,
        };
        candidates.add_slots(cluster_state, slots);
        candidates
    }

    fn add_slots(&mut self, cluster_state: &'v ClusterState, slots: impl IntoIterator<Item = NodeSlot>) {
        for slot in slots {
            let (number, offset) = (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
            let Some(chunk) = cluster_state
                .chunks()
                .get(number)
                .filter(|chunk| chunk.live().get(offset))
            else {
                self.absent.push(slot);
                continue;
            };
            let new = chunk_slice(slot / CHUNK_SLOTS, chunk, NodeMask::NONE);
            if self.slices.last().is_none_or(|last| last.first_slot != new.first_slot) {
                self.slices.push(new);
            }
            if let Some(last) = self.slices.last_mut() {
                last.candidates.set(offset, true);
            }
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.slices.iter().map(|part| part.candidates.count() as usize).sum()
    }

    /// Indexes of nodes, given by slot, in the caller's order; `None`: the order is the same.
    pub(super) fn caller_order(&self, slots: &[NodeSlot]) -> Option<Vec<usize>> {
        let order = self.order.as_ref()?;
        let position = |slot: NodeSlot| {
            let at = order.partition_point(|&(other, _)| other < slot);
            order.get(at).map_or(usize::MAX, |&(_, position)| position)
        };
        let mut indexes: Vec<(usize, usize)> = slots.iter().map(|&slot| position(slot)).zip(0..).collect();
        indexes.sort_unstable();
        Some(indexes.into_iter().map(|(_, index)| index).collect())
    }
}

const CHUNK_SLOTS: NodeSlot = 256;
const _: () = assert!(CHUNK_SLOTS as usize == CHUNK_SIZE);

fn chunk_slice(number: NodeSlot, chunk: &NodeChunk, among: NodeMask) -> ChunkSlice<'_> {
    ChunkSlice {
        first_slot: number * CHUNK_SLOTS,
        chunk,
        candidates: among,
    }
}
