//! Values of nodes that their records alone decide, on chunks of a cluster state and on hypothetical ones.

use std::cell::RefCell;

use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, NodeSlot};
use crate::plugin::ChunkScores;

/// Values of nodes that their records alone decide, chunk by chunk. Tasks change none of them, so a hypothetical node has
/// the value of the node that it was made from.
pub(super) struct RecordValues<'a, F> {
    state: &'a ClusterState,
    compute: F,
    /// Values of the chunks that were stored, by the number of the chunk.
    stored: RefCell<Vec<Option<StoredValues>>>,
}

/// Values that a closure of any type computes.
pub(super) type BoxedRecordValues<'a> = RecordValues<'a, Box<dyn Fn(&NodeChunk, &mut ChunkScores) -> Option<f64> + 'a>>;

/// Values of the nodes of a chunk.
enum StoredValues {
    /// Value of all nodes.
    Equal(f64),
    /// Value of each node.
    Each(Box<ChunkScores>),
}

impl<'a, F: Fn(&NodeChunk, &mut ChunkScores) -> Option<f64>> RecordValues<'a, F> {
    /// Values in a cluster state. `compute` fills in the values of one chunk, or returns the common value of all its
    /// nodes.
    pub(super) fn new(state: &'a ClusterState, compute: F) -> Self {
        Self {
            state,
            compute,
            stored: RefCell::default(),
        }
    }

    /// Fills in the values of a chunk, or returns the value that all its nodes have. Places without a node get any finite
    /// value.
    pub(super) fn fill_different(&self, chunk: &NodeChunk, values: &mut ChunkScores) -> Option<f64> {
        if chunk.is_detached() {
            self.fill_detached(chunk, values);
            return None;
        }
        let stored = self.stored.borrow();
        match stored.get(chunk.number() as usize).and_then(Option::as_ref) {
            Some(StoredValues::Equal(value)) => Some(*value),
            Some(StoredValues::Each(stored)) => {
                values.copy_from_slice(&**stored);
                None
            }
            None => (self.compute)(chunk, values),
        }
    }

    /// Fills in the values of a chunk. Places without a node get any finite value.
    pub(super) fn fill(&self, chunk: &NodeChunk, values: &mut ChunkScores) {
        if let Some(value) = self.fill_different(chunk, values) {
            values.fill(value);
        }
    }

    fn fill_detached(&self, chunk: &NodeChunk, values: &mut ChunkScores) {
        for (offset, value) in values.iter_mut().enumerate() {
            *value = chunk.slot(offset).map_or(0.0, |slot| self.at(slot));
        }
    }

    /// Value of the node at a slot of the cluster state; 0 if there is none. The values of its chunk are stored.
    pub(super) fn at(&self, slot: NodeSlot) -> f64 {
        let (number, offset) = (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
        let Some(chunk) = self.state.chunks().get(number) else {
            return 0.0;
        };
        let mut stored = self.stored.borrow_mut();
        if stored.len() <= number {
            stored.resize_with(number + 1, || None);
        }
        let Some(place) = stored.get_mut(number) else {
            return 0.0;
        };
        let values = place.get_or_insert_with(|| {
            let mut values = Box::new([0.0; CHUNK_SIZE]);
            (self.compute)(chunk, &mut values).map_or(StoredValues::Each(values), StoredValues::Equal)
        });
        match values {
            StoredValues::Equal(value) => *value,
            StoredValues::Each(values) => values.get(offset).copied().unwrap_or(0.0),
        }
    }
}
