//! Memory that a cluster state does not share with an older state of its history, in bytes.

use std::sync::Arc;

use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;

impl ClusterState {
    /// The chunks that the other cluster state does not share.
    pub fn unshared_chunks<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<NodeChunk>> + 'a {
        let shared = |(number, chunk): &(usize, &Arc<NodeChunk>)| {
            let there = other.chunks().get(*number);
            there.is_some_and(|there| Arc::ptr_eq(there, chunk))
        };
        let numbered = self.chunks().iter().enumerate();
        numbered.filter(move |one| !shared(one)).map(|(_, chunk)| chunk)
    }

    /// Bytes of the chunks that this cluster state has and the older one does not share.
    pub fn unshared_bytes(&self, older: &Self) -> usize {
        let none = NodeChunk::default();
        let chunks = self.chunks().iter().enumerate();
        chunks
            .map(|(number, chunk)| match older.chunks().get(number) {
                Some(old) if Arc::ptr_eq(old, chunk) => 0,
                Some(old) => chunk.unshared_bytes(old),
                None => chunk.unshared_bytes(&none),
            })
            .sum()
    }
}
