//! Chunks of a cluster state, and the entries of the nodes of a chunk.

use std::sync::Arc;

use super::NodeChunk;
use crate::held_bytes::held_bytes;
use crate::model::mask::CHUNK_SIZE;
use crate::model::node::NodeEntry;
use crate::model::shared_list::SharedList;

/// The chunks of a cluster state, in slot order.
pub type NodeChunks = SharedList<Arc<NodeChunk>, 16>;

/// Number of nodes in a group.
const NODES_PER_GROUP: usize = 16;

/// Entries of the nodes of a chunk, by offset.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct NodeEntries([Arc<[Option<Arc<NodeEntry>>; NODES_PER_GROUP]>; CHUNK_SIZE / NODES_PER_GROUP]);

held_bytes! { NodeEntries { 0 } }

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
}
