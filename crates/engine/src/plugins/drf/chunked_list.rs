//! Chunked list: a list of fixed length whose clones share what neither of them changes.

use std::sync::Arc;

/// Number of pointers that one change copies, besides the element itself.
const CHUNK: usize = 64;

/// List of shared chunks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChunkedList<T>(Vec<Arc<Vec<Arc<T>>>>);

impl<T> Default for ChunkedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> ChunkedList<T> {
    /// Element at a position.
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at / CHUNK)?.get(at % CHUNK).map(|item| &**item)
    }

    /// Mutable element at a position.
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let chunk = Arc::make_mut(self.0.get_mut(at / CHUNK)?);
        chunk.get_mut(at % CHUNK).map(Arc::make_mut)
    }
}

impl<T: Clone> FromIterator<T> for ChunkedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut chunks = Vec::new();
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            chunks.push(Arc::new(items.by_ref().take(CHUNK).map(Arc::new).collect()));
        }
        Self(chunks)
    }
}
