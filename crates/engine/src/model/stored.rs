//! Stored records: the owner of a record, the problems of a rejected newer one, and the slots of nodes.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use super::problem::Problem;
use super::table::SortedTable;
use crate::held_bytes::HeldMemory;

/// Position of a node in the node table: chunk `slot / 256`, offset `slot % 256`.
pub type NodeSlot = u32;

/// Index of node names and slots. It only grows within one generation of the node table, and all cluster states of the
/// generation share it. A cluster state trusts a slot only if its own entry there has the name.
pub trait NodeIndex: Debug + Send + Sync {
    /// Slot of a name, if it ever had one.
    fn slot(&self, name: &str) -> Option<NodeSlot>;

    /// Name of a slot, even while its node is absent.
    fn name(&self, slot: NodeSlot) -> Option<Arc<str>>;
}

/// Index of a cluster that is sent as a whole: sorted names with their slots.
impl NodeIndex for SortedTable<NodeSlot> {
    fn slot(&self, name: &str) -> Option<NodeSlot> {
        self.get(name).copied()
    }

    /// Nodes of such a cluster are never removed, so cluster states themselves know the names.
    fn name(&self, _: NodeSlot) -> Option<Arc<str>> {
        None
    }
}

/// Problems of the newest record, if it was rejected. Empty: the record is valid.
pub type RecordProblems = Arc<Vec<Problem>>;

/// Owner of a record in one word: the name of its source, and the record's problems if it has any. All valid records of
/// a source share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOwner(Arc<OwnerState>);

#[derive(Debug, PartialEq, Eq)]
struct OwnerState {
    source: Arc<str>,
    invalid: Option<RecordProblems>,
}

impl RecordOwner {
    /// Owner of valid records.
    pub(super) fn new(source: &Arc<str>) -> Self {
        Self::with_state(source, None)
    }

    /// Owner of a record whose newer version was rejected for these problems.
    pub(super) fn with_problems(&self, problems: RecordProblems) -> Self {
        Self::with_state(self, Some(problems))
    }

    fn with_state(source: &Arc<str>, invalid: Option<RecordProblems>) -> Self {
        Self(Arc::new(OwnerState {
            source: Arc::clone(source),
            invalid,
        }))
    }
}

impl Deref for RecordOwner {
    type Target = Arc<str>;

    fn deref(&self) -> &Arc<str> {
        &self.0.source
    }
}

/// A record with its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord<R> {
    /// Record itself.
    pub record: R,
    /// Owner of the record.
    pub source: RecordOwner,
}

impl<R: HeldMemory> HeldMemory for StoredRecord<R> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.record.held_bytes(older.map(|older| &older.record))
    }
}

impl<R> StoredRecord<R> {
    /// Problems of a newer record that was rejected; `record` is the last valid one.
    pub fn invalid(&self) -> Option<&RecordProblems> {
        self.source.0.invalid.as_ref()
    }
}

/// Kind of a record in the cluster state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// Node; its key is the name, such as `gpu-node-7`.
    Node,
    /// Queue; its key is the name, such as `research`.
    Queue,
    /// Job; its key is `namespace/name`, such as `train/bert`.
    Job,
    /// Task; its key is `namespace/name`, such as `train/bert-0`.
    Task,
    /// Namespace; its key is the name, such as `train`.
    Namespace,
    /// Priority class; its key is the name, such as `high-priority`.
    PriorityClass,
}

impl RecordKind {
    /// Name of the kind, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Queue => "queue",
            Self::Job => "job",
            Self::Task => "task",
            Self::Namespace => "namespace",
            Self::PriorityClass => "priority class",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TaskRecord;

    #[test]
    fn a_stored_task_and_the_counts_beside_it_take_sixteen_words() {
        assert_eq!(size_of::<StoredRecord<TaskRecord>>() + 2 * size_of::<usize>(), 16 * 8);
    }
}
