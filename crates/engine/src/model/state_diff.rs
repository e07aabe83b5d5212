//! Differences between a cluster state and an older one. Shared parts are found by their pointers and cost nothing.

use std::sync::Arc;

use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;
use super::mask::CHUNK_SIZE;
use super::node::NodeEntry;
use super::records::{JobRecord, QueueRecord, TaskRecord};
use super::stored::{NodeSlot, StoredRecord};
use super::table::SortedTable;

/// Two cluster states of one history.
#[derive(Clone, Copy, Debug)]
pub struct StateDiff<'a> {
    /// Older state.
    pub old: &'a ClusterState,
    /// Newer state.
    pub new: &'a ClusterState,
}

/// Record that differs between the older and the newer state, or exists in one of them only.
#[derive(Clone, Copy, Debug)]
pub struct RecordChange<'a, R> {
    /// Name of the record. Jobs and tasks: `namespace/name`.
    pub name: &'a Arc<str>,
    /// Record in the older state.
    pub before: Option<&'a R>,
    /// Record in the newer state.
    pub after: Option<&'a R>,
}

/// Node that differs between the older and the newer state, at its slot.
#[derive(Clone, Copy, Debug)]
pub struct NodeChange<'a> {
    /// Position in the node table, in both states.
    pub slot: NodeSlot,
    /// Node in the older state.
    pub before: Option<&'a Arc<NodeEntry>>,
    /// Node in the newer state.
    pub after: Option<&'a Arc<NodeEntry>>,
}

impl<'a> StateDiff<'a> {
    /// True if slots mean the same nodes in both.
    pub fn same_slots(&self) -> bool {
        self.old.generation() == self.new.generation()
    }

    /// Nodes whose records differ, by slot; usage by tasks is not compared.
    pub fn nodes(&self) -> Vec<NodeChange<'a>> {
        let (old, new) = (self.old.chunks(), self.new.chunks());
        let mut changed = Vec::new();
        for number in 0..old.len().max(new.len()) {
            let mut compare =
                |offset: usize| changed.extend(node_change(old.get(number), new.get(number), (number, offset)));
            match (old.get(number), new.get(number)) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
                (Some(old), Some(new)) => old.changed_offsets(new).for_each(compare),
                _ => (0..CHUNK_SIZE).for_each(&mut compare),
            }
        }
        changed
    }

    /// Queues whose records differ, by name.
    pub fn queues(&self) -> Vec<RecordChange<'a, QueueRecord>> {
        changed_records(self.old.queues(), self.new.queues())
    }

    /// Jobs whose records differ, by name.
    pub fn jobs(&self) -> Vec<RecordChange<'a, JobRecord>> {
        changed_records(self.old.jobs(), self.new.jobs())
    }

    /// Tasks whose records differ, by name.
    pub fn tasks(&self) -> Vec<RecordChange<'a, TaskRecord>> {
        changed_records(self.old.tasks(), self.new.tasks())
    }
}

/// Change of the node at an offset of two versions of a chunk; `None`: its record is the same.
fn node_change<'a>(
    old: Option<&'a Arc<NodeChunk>>,
    new: Option<&'a Arc<NodeChunk>>,
    (number, offset): (usize, usize),
) -> Option<NodeChange<'a>> {
    let entry = |chunk: Option<&'a Arc<NodeChunk>>| chunk.and_then(|chunk| chunk.entry(offset));
    let (before, after) = (entry(old), entry(new));
    let same = match (before, after) {
        (None, None) => true,
        (Some(before), Some(after)) => {
            Arc::ptr_eq(before, after) || Arc::ptr_eq(&before.record, &after.record) || before.record == after.record
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    let slot = NodeSlot::try_from(number * CHUNK_SIZE + offset).ok()?;
    (!same).then_some(NodeChange { slot, before, after })
}

fn changed_records<'a, R: PartialEq>(
    old: &'a SortedTable<Arc<StoredRecord<R>>>,
    new: &'a SortedTable<Arc<StoredRecord<R>>>,
) -> Vec<RecordChange<'a, R>> {
    let same = |a: &Arc<StoredRecord<R>>, b: &Arc<StoredRecord<R>>| Arc::ptr_eq(a, b) || a.record == b.record;
    let differences = old.differences(new, same).into_iter();
    differences
        .map(|(name, before, after)| RecordChange {
            name,
            before: before.map(|stored| &stored.record),
            after: after.map(|stored| &stored.record),
        })
        .collect()
}
