//! Chunked list: a list of fixed length whose clones share what neither of them changes.

use std::sync::Arc;

use crate::model::COUNT_BYTES;

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

impl<T> ChunkedList<T> {
    /// Bytes that this list holds and the older one does not share. `own`: bytes of what an element holds.
    pub(super) fn held_bytes(&self, older: Option<&Self>, own: impl Fn(&T) -> usize) -> usize {
        let list = self.0.len() * size_of::<Arc<Vec<Arc<T>>>>();
        let chunks = self.0.iter().enumerate().map(|(number, chunk)| {
            let old = older.and_then(|older| older.0.get(number));
            if old.is_some_and(|old| Arc::ptr_eq(old, chunk)) {
                return 0;
            }
            let new = chunk.iter().enumerate().filter(|(at, item)| {
                let old = old.and_then(|old| old.get(*at));
                !old.is_some_and(|old| Arc::ptr_eq(old, item))
            });
            let items = new.map(|(_, item)| COUNT_BYTES + size_of::<T>() + own(item));
            COUNT_BYTES + size_of::<Vec<Arc<T>>>() + chunk.capacity() * size_of::<Arc<T>>() + items.sum::<usize>()
        });
        list + chunks.sum::<usize>()
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
