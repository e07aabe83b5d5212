//! Memory of the shares in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::share::ExactAmounts;
use super::{DrfState, JobAccount, TreeLayout, layout};

/// Bytes of amounts beyond their own size.
fn beyond(amounts: &ExactAmounts) -> usize {
    if amounts.spilled() {
        amounts.capacity() * size_of::<i128>()
    } else {
        0
    }
}

/// Bytes of the blocks of a map, which are filled to about two thirds.
fn map_bytes<K, V>(map: &BTreeMap<K, V>) -> usize {
    map.len() * size_of::<(K, V)>() * 3 / 2
}

impl DrfState {
    /// Bytes that this state holds, and that the older one does not share.
    pub(super) fn bytes_beside(&self, older: Option<&Self>) -> usize {
        let layout = match older {
            Some(older) if Arc::ptr_eq(&older.layout, &self.layout) => 0,
            _ => self.layout.held_bytes(),
        };
        let account = |account: &JobAccount| {
            beyond(&account.held)
                + account.waiting_kinds.capacity() * size_of::<(super::resource_set::ResourceSet, u32)>()
        };
        let tree = self
            .tree
            .as_ref()
            .map_or(0, |tree| tree.held_bytes(older.and_then(|older| older.tree.as_ref())));
        size_of::<Self>()
            + layout
            + self.accounts.held_bytes(older.map(|older| &older.accounts), account)
            + self.held_below.held_bytes(older.map(|older| &older.held_below), beyond)
            + tree
    }
}

impl TreeLayout {
    fn held_bytes(&self) -> usize {
        let jobs = self.jobs.iter().map(|job| beyond(&job.requested)).sum::<usize>()
            + self.jobs.capacity() * size_of::<layout::TreeJob>();
        let node = |node: &layout::InnerNode| {
            node.path.capacity() + node.jobs.capacity() * size_of::<usize>() + map_bytes(&node.children)
        };
        let nodes = self.nodes.iter().map(node).sum::<usize>() + self.nodes.capacity() * size_of::<layout::InnerNode>();
        let queue = |queue: &Result<layout::QueuePosition, _>| {
            queue
                .as_ref()
                .map_or(0, |queue| queue.nodes.capacity() * size_of::<usize>())
        };
        let top = self
            .queues_by_top_node
            .values()
            .map(|queues| queues.capacity() * size_of::<Arc<str>>());
        jobs + nodes
            + self.queues.values().map(queue).sum::<usize>()
            + map_bytes(&self.queues)
            + map_bytes(&self.queues_by_top_node)
            + top.sum::<usize>()
            + (self.weights.capacity() + self.branching_nodes.capacity()) * size_of::<u64>()
    }
}
