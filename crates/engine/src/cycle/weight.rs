//! Memory of a cycle in bytes: what it and its savepoints do not share with the state at its beginning.

use std::sync::Arc;

use super::{CycleState, SchedulingCycle, TaskMoved};
use crate::held_bytes::{COUNT_BYTES, HeldMemory};
use crate::model::{StoredRecord, TaskRecord};

/// Bytes of texts that a change brings: the names of a node and of a card.
const TEXT_BYTES: usize = 48;
/// Bytes of a moved task, besides its entries in tables: its record, and how it moved.
const TASK_BYTES: usize = size_of::<StoredRecord<TaskRecord>>() + size_of::<TaskMoved>() + 2 * COUNT_BYTES + TEXT_BYTES;

impl SchedulingCycle {
    /// Bytes that the cycle and its savepoints do not share with the state at the beginning.
    pub fn bytes(&self) -> usize {
        let states = (1 + self.savepoints.len()) * (size_of::<CycleState>() + COUNT_BYTES);
        size_of::<Self>() + states + self.state.savepoint_bytes + self.bytes_since_savepoint()
    }

    /// Bytes that the present state does not share with the last savepoint.
    pub(super) fn bytes_since_savepoint(&self) -> usize {
        let last = self.savepoints.last();
        self.state
            .unshared_bytes(last.map_or(&self.initial, |(_, state)| state))
    }
}

impl CycleState {
    fn unshared_bytes(&self, before: &Arc<Self>) -> usize {
        let moves = usize::try_from(self.moves.saturating_sub(before.moves)).unwrap_or(usize::MAX);
        let upstream = self.upstream.as_ref().zip(before.upstream.as_ref());
        self.cluster_state.unshared_bytes_beside_tasks(&before.cluster_state)
            + self.plugin_states.unshared_bytes(&before.plugin_states)
            + self.evicted.unshared_bytes(&before.evicted)
            + self.moved_tasks.unshared_bytes(&before.moved_tasks)
            + upstream.map_or(0, |(own, before)| own.copies.held_bytes(Some(&before.copies)))
            + moves.min(self.moved_tasks.len()) * TASK_BYTES
    }
}
