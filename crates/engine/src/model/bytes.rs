//! Memory of a cluster state in bytes: all that it holds, or what it does not share with an older state of its history.

use std::sync::Arc;

use super::cluster_state::ClusterState;
use super::table::SortedTable;
use crate::held_bytes::{HeldMemory, held_share};

impl ClusterState {
    /// Bytes that this cluster state has and another one, of the same history, does not share.
    pub fn unshared_bytes(&self, other: &Self) -> usize {
        let blocks = self.tasks().unshared_bytes(other.tasks());
        self.unshared_bytes_beside_tasks(other) + self.tasks().held_bytes(Some(other.tasks())) - blocks
    }

    /// Bytes of this cluster state that another state of the same history does not share. Task records are not
    /// included: code that moves tasks already has their number.
    pub(crate) fn unshared_bytes_beside_tasks(&self, other: &Self) -> usize {
        self.chunks().held_bytes(Some(other.chunks()))
            + self.tasks().unshared_bytes(other.tasks())
            + self.queues().held_bytes(Some(other.queues()))
            + self.jobs().held_bytes(Some(other.jobs()))
            + self.namespaces().held_bytes(Some(other.namespaces()))
            + self.allocated.held_bytes(Some(&other.allocated))
            + self.assumed.held_bytes(Some(&other.assumed))
    }

    /// Bytes that this cluster state holds: its part of all records, tables and columns. It walks all records.
    pub fn held_bytes(&self) -> usize {
        // The index has an entry for each node, beside the node's own.
        let index = self.node_count() as usize * size_of::<(Arc<str>, u64)>();
        index
            + self.chunks().held_bytes(None)
            + table_share(self.queues())
            + table_share(self.jobs())
            + table_share(self.tasks())
            + table_share(self.namespaces())
            + table_share(&self.allocated)
    }
}

/// Bytes of a table's blocks and names, and its part of the values that it shares with other owners.
fn table_share<V: HeldMemory>(table: &SortedTable<Arc<V>>) -> usize {
    let entries = table.iter().map(|(name, own)| {
        let bytes = size_of::<V>() + V::held_bytes(own, None);
        name.held_bytes(None) + held_share(own, bytes)
    });
    entries.sum::<usize>() + table.unshared_bytes(&SortedTable::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeSlot, TaskFields, TaskRecord, TaskShape, TextMap};

    fn state_of(tasks: usize, annotation: usize) -> ClusterState {
        let mut state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
        for number in 0..tasks {
            let annotations: TextMap = [("key".into(), "x".repeat(annotation).into())].into();
            let task = TaskFields {
                name: format!("ns/task-{number}").into(),
                annotations,
                ..TaskFields::default()
            };
            state.put_task(task.into(), &"a".into());
        }
        state
    }

    #[test]
    fn records_and_their_texts_weigh() {
        let (empty, few, many) = (state_of(0, 0), state_of(1_000, 0), state_of(1_000, 2_000));
        assert!(empty.held_bytes() < 300, "{}", empty.held_bytes());
        let each = few.held_bytes() / 1_000;
        let record = size_of::<TaskRecord>() + size_of::<TaskShape>();
        assert!((record..record + 400).contains(&each), "{each}");
        let more = (many.held_bytes() - few.held_bytes()) / 1_000;
        assert!((2_000..2_100).contains(&more), "{more}");
    }

    #[test]
    fn holders_count_their_share() {
        let state = state_of(100, 1_000);
        let alone = state.held_bytes();
        let shared = state
            .tasks()
            .iter()
            .map(|(_, task)| Arc::clone(task))
            .collect::<Vec<_>>();
        let half = state.held_bytes();
        assert!(half < alone * 6 / 10, "{half} of {alone}");
        drop(shared);
        assert_eq!(state.held_bytes(), alone);
    }
}
