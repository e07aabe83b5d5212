//! Lists that clones share in groups: a clone costs one pointer per group, and a change copies one group.

use std::iter::FlatMap;
use std::slice;
use std::sync::Arc;

use super::NodeChunk;
use crate::model::mask::CHUNK_SIZE;
use crate::model::node::NodeEntry;

/// Number of chunks in a group.
const CHUNKS_PER_GROUP: usize = 16;

/// The chunks of a cluster state, in slot order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChunks {
    /// Groups, all full except the last one.
    groups: Vec<ChunkGroup>,
}

impl NodeChunks {
    /// Number of chunks.
    pub fn len(&self) -> usize {
        let last = self.groups.last().map_or(0, |last| last.len());
        self.groups.len().saturating_sub(1) * CHUNKS_PER_GROUP + last
    }

    /// True if the list has no chunks.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Chunk of this number.
    pub fn get(&self, number: usize) -> Option<&Arc<NodeChunk>> {
        self.groups
            .get(number / CHUNKS_PER_GROUP)?
            .get(number % CHUNKS_PER_GROUP)
    }

    /// First chunk. `None`: the list is empty.
    pub fn first(&self) -> Option<&Arc<NodeChunk>> {
        self.get(0)
    }

    /// All chunks.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<NodeChunk>> {
        self.into_iter()
    }

    pub(in crate::model) fn get_mut(&mut self, number: usize) -> Option<&mut Arc<NodeChunk>> {
        Arc::make_mut(self.groups.get_mut(number / CHUNKS_PER_GROUP)?).get_mut(number % CHUNKS_PER_GROUP)
    }

    pub(in crate::model) fn push(&mut self, chunk: Arc<NodeChunk>) {
        match self.groups.last_mut().filter(|last| last.len() < CHUNKS_PER_GROUP) {
            Some(last) => Arc::make_mut(last).push(chunk),
            None => self.groups.push(Arc::new(vec![chunk])),
        }
    }
}

type ChunkGroup = Arc<Vec<Arc<NodeChunk>>>;

impl<'a> IntoIterator for &'a NodeChunks {
    type Item = &'a Arc<NodeChunk>;
    type IntoIter = FlatMap<
        slice::Iter<'a, ChunkGroup>,
        slice::Iter<'a, Arc<NodeChunk>>,
        fn(&'a ChunkGroup) -> slice::Iter<'a, Arc<NodeChunk>>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

/// Bytes of a node's entry, besides the record.
fn entry_bytes(entry: &NodeEntry) -> usize {
    let upstream = entry.upstream.as_ref().map_or(0, |own| own.held_bytes());
    size_of::<NodeEntry>() + entry.usage.held_bytes() + upstream
}

/// Number of nodes in a group.
const NODES_PER_GROUP: usize = 16;

/// Entries of the nodes of a chunk, by offset.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct NodeEntries([Arc<[Option<Arc<NodeEntry>>; NODES_PER_GROUP]>; CHUNK_SIZE / NODES_PER_GROUP]);

impl Default for NodeEntries {
    fn default() -> Self {
        let empty = Arc::new([const { None }; NODES_PER_GROUP]);
        Self(std::array::from_fn(|_| Arc::clone(&empty)))
    }
}

impl NodeEntries {
    pub(in crate::model) fn get(&self, offset: usize) -> Option<&Option<Arc<NodeEntry>>> {
        self.0.get(offset / NODES_PER_GROUP)?.get(offset % NODES_PER_GROUP)
    }

    pub(in crate::model) fn get_mut(&mut self, offset: usize) -> Option<&mut Option<Arc<NodeEntry>>> {
        Arc::make_mut(self.0.get_mut(offset / NODES_PER_GROUP)?).get_mut(offset % NODES_PER_GROUP)
    }

    /// Offsets of the groups that these entries do not share with others.
    pub(in crate::model) fn unshared_offsets<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let pairs = self.0.iter().zip(&other.0).enumerate();
        let different = pairs.filter(|(_, (one, next))| !Arc::ptr_eq(one, next));
        different.flat_map(|(group, _)| group * NODES_PER_GROUP..(group + 1) * NODES_PER_GROUP)
    }

    /// Bytes that these entries do not share with older ones.
    pub(in crate::model) fn unshared_bytes(&self, older: &Self) -> usize {
        let groups = self.0.iter().zip(&older.0);
        let own = groups.filter(|(new, old)| !Arc::ptr_eq(new, old)).map(|(new, old)| {
            let changed = new.iter().zip(&**old).filter_map(|(new, old)| match (new, old) {
                (Some(new), Some(old)) if Arc::ptr_eq(new, old) => None,
                (new, _) => new.as_ref(),
            });
            size_of_val(&**new) + changed.map(|entry| entry_bytes(entry)).sum::<usize>()
        });
        own.sum()
    }
}
