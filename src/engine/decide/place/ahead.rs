//! A chunk made of nodes as they would stand after more tasks, so that plugins' own kernels judge many of them at once.

use std::sync::Arc;

use super::run::Run;
use crate::engine::decide::score::Scratch;
use crate::engine::model::{CHUNK, Chunk, Mask, NodeEntry};

/// Nodes that are looked at together.
pub(super) struct Ahead {
    chunk: Chunk,
    /// Whose each place is, and how the node would stand.
    places: Vec<(usize, Arc<NodeEntry>)>,
    scratch: Box<Scratch>,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            chunk: Chunk::default(),
            places: Vec::new(),
            scratch: Box::new(Scratch::new()),
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    /// Takes one more in; false: there is no place left.
    pub(super) fn add(&mut self, number: usize, entry: &Arc<NodeEntry>) -> bool {
        if self.places.len() == CHUNK {
            return false;
        }
        self.chunk.set_entry(self.places.len(), Some(Arc::clone(entry)));
        self.places.push((number, Arc::clone(entry)));
        true
    }

    /// Scores of all that were taken in, in that order.
    pub(super) fn judge(&mut self, run: &Run<'_>, mut say: impl FnMut(usize, Arc<NodeEntry>, Option<u64>)) {
        let mut among = Mask::NONE;
        for place in 0..self.places.len() {
            among.set(place, true);
        }
        let places = &self.places;
        run.judge(&self.chunk, &among, &mut self.scratch, |place, score| {
            if let Some((number, entry)) = places.get(place) {
                say(*number, Arc::clone(entry), score);
            }
        });
    }
}
