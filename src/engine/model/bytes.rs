//! What a View holds of its own beside an older one of its history, in bytes.

use std::sync::Arc;

use super::chunk::Chunk;
use super::view::View;

impl View {
    /// The chunks that the other View does not share.
    pub fn chunks_beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<Chunk>> + 'a {
        let shared = |(number, chunk): &(usize, &Arc<Chunk>)| {
            let there = other.chunks().get(*number);
            there.is_some_and(|there| Arc::ptr_eq(there, chunk))
        };
        let numbered = self.chunks().iter().enumerate();
        numbered.filter(move |one| !shared(one)).map(|(_, chunk)| chunk)
    }

    /// Bytes of the chunks that this View has and the older one does not share.
    pub fn bytes_beside(&self, older: &Self) -> usize {
        let none = Chunk::default();
        let chunks = self.chunks().iter().enumerate();
        chunks
            .map(|(number, chunk)| match older.chunks().get(number) {
                Some(old) if Arc::ptr_eq(old, chunk) => 0,
                Some(old) => chunk.bytes_beside(old),
                None => chunk.bytes_beside(&none),
            })
            .sum()
    }
}
