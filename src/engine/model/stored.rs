//! What a cluster state keeps beside records: whose they are, what is wrong with them, and where nodes stand.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use super::cluster_state::NodeSlot;
use super::problem::Problem;
use super::table::SortedTable;

/// Names of nodes to slots. Within one generation of the node table it only grows, so that all cluster states of the generation
/// share one; a cluster state believes it only as far as its own entry at that slot has the name.
pub trait NodeIndex: Debug + Send + Sync {
    /// The slot of a name, if it ever had one.
    fn slot(&self, name: &str) -> Option<NodeSlot>;

    /// The name of a slot, also while its node is away.
    fn name(&self, slot: NodeSlot) -> Option<Arc<str>>;
}

/// The index of a cluster that comes whole: names sorted, with their slots.
impl NodeIndex for SortedTable<NodeSlot> {
    fn slot(&self, name: &str) -> Option<NodeSlot> {
        self.get(name).copied()
    }

    /// Nodes of such a cluster never go away, so that cluster states name them.
    fn name(&self, _: NodeSlot) -> Option<Arc<str>> {
        None
    }
}

/// Faults of a record.
pub type RecordProblems = Arc<Vec<Problem>>;

/// The name of a source as records hold it, in one word; and what is wrong with a record, if anything is. All good records
/// of a source share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOwner(Arc<OwnerState>);

#[derive(Debug, PartialEq, Eq)]
struct OwnerState {
    source: Arc<str>,
    invalid: Option<RecordProblems>,
}

impl RecordOwner {
    /// The owner of good records.
    pub(super) fn new(source: &Arc<str>) -> Self {
        Self::with_state(source, None)
    }

    /// The same of a record that is outdated by a refused one.
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
    /// The record.
    pub record: R,
    /// Its owner.
    pub source: RecordOwner,
}

impl<R> StoredRecord<R> {
    /// Faults of a newer record that was refused; this one is the last good one.
    pub fn invalid(&self) -> Option<&RecordProblems> {
        self.source.0.invalid.as_ref()
    }
}

/// The kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A node.
    Node,
    /// A queue.
    Queue,
    /// A job.
    Job,
    /// A task.
    Task,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::TaskRecord;

    #[test]
    fn a_stored_task_and_the_counts_beside_it_take_fourteen_words() {
        assert_eq!(size_of::<StoredRecord<TaskRecord>>() + 2 * size_of::<usize>(), 14 * 8);
    }
}
