//! Lists that are shared in groups: a clone costs a pointer per group, and a change copies the group that it touches.

use std::iter::FlatMap;
use std::slice;
use std::sync::Arc;

use super::chunk::{CHUNK, Chunk};
use super::node::NodeEntry;

/// Chunks in a group.
const GROUP: usize = 16;

/// The chunks of a View, in slot order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunks {
    /// All full but the last one.
    groups: Vec<Group>,
}

impl Chunks {
    /// Number of chunks.
    pub fn len(&self) -> usize {
        let last = self.groups.last().map_or(0, |last| last.len());
        self.groups.len().saturating_sub(1) * GROUP + last
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The chunk of a number.
    pub fn get(&self, number: usize) -> Option<&Arc<Chunk>> {
        self.groups.get(number / GROUP)?.get(number % GROUP)
    }

    /// The first chunk.
    pub fn first(&self) -> Option<&Arc<Chunk>> {
        self.get(0)
    }

    /// All chunks.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.into_iter()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Arc<Chunk>> {
        Arc::make_mut(self.groups.get_mut(number / GROUP)?).get_mut(number % GROUP)
    }

    pub(super) fn push(&mut self, chunk: Arc<Chunk>) {
        match self.groups.last_mut().filter(|last| last.len() < GROUP) {
            Some(last) => Arc::make_mut(last).push(chunk),
            None => self.groups.push(Arc::new(vec![chunk])),
        }
    }
}

type Group = Arc<Vec<Arc<Chunk>>>;

impl<'a> IntoIterator for &'a Chunks {
    type Item = &'a Arc<Chunk>;
    type IntoIter =
        FlatMap<slice::Iter<'a, Group>, slice::Iter<'a, Arc<Chunk>>, fn(&'a Group) -> slice::Iter<'a, Arc<Chunk>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

/// Nodes in a group.
const NODES: usize = 16;

/// The nodes of a chunk by their offsets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entries([Arc<[Option<Arc<NodeEntry>>; NODES]>; CHUNK / NODES]);

impl Default for Entries {
    fn default() -> Self {
        let empty = Arc::new([const { None }; NODES]);
        Self(std::array::from_fn(|_| Arc::clone(&empty)))
    }
}

impl Entries {
    pub(super) fn get(&self, offset: usize) -> Option<&Option<Arc<NodeEntry>>> {
        self.0.get(offset / NODES)?.get(offset % NODES)
    }

    pub(super) fn get_mut(&mut self, offset: usize) -> Option<&mut Option<Arc<NodeEntry>>> {
        Arc::make_mut(self.0.get_mut(offset / NODES)?).get_mut(offset % NODES)
    }

    /// Bytes that these take beside older ones.
    pub(super) fn bytes_beside(&self, older: &Self) -> usize {
        let groups = self.0.iter().zip(&older.0);
        let own = groups.filter(|(new, old)| !Arc::ptr_eq(new, old)).map(|(new, old)| {
            let changed = new.iter().zip(&**old).filter(|(new, old)| match (new, old) {
                (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
                (new, _) => new.is_some(),
            });
            size_of_val(&**new) + changed.count() * size_of::<NodeEntry>()
        });
        own.sum()
    }
}
