//! What a View keeps beside records: whose they are, what is wrong with them, and where nodes stand.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use super::problem::Problem;
use super::table::Table;
use super::view::Slot;

/// Names of nodes to slots. Within one generation of the node table it only grows, so that all Views of the generation
/// share one; a View believes it only as far as its own entry at that slot has the name.
pub trait NodeIndex: Debug + Send + Sync {
    /// The slot of a name, if it ever had one.
    fn slot(&self, name: &str) -> Option<Slot>;

    /// The name of a slot, also while its node is away.
    fn name(&self, slot: Slot) -> Option<Arc<str>>;
}

/// The index of a cluster that comes whole: names sorted, with their slots.
impl NodeIndex for Table<Slot> {
    fn slot(&self, name: &str) -> Option<Slot> {
        self.get(name).copied()
    }

    /// Nodes of such a cluster never go away, so that Views name them.
    fn name(&self, _: Slot) -> Option<Arc<str>> {
        None
    }
}

/// Faults of a record.
pub type Faults = Arc<Vec<Problem>>;

/// The name of a source as records hold it, in one word; and what is wrong with a record, if anything is. All good records
/// of a source share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(Arc<Standing>);

#[derive(Debug, PartialEq, Eq)]
struct Standing {
    source: Arc<str>,
    invalid: Option<Faults>,
}

impl Owner {
    /// The owner of good records.
    pub(super) fn new(source: &Arc<str>) -> Self {
        Self::standing(source, None)
    }

    /// The same of a record that is outdated by a refused one.
    pub(super) fn refused(&self, faults: Faults) -> Self {
        Self::standing(self, Some(faults))
    }

    fn standing(source: &Arc<str>, invalid: Option<Faults>) -> Self {
        Self(Arc::new(Standing {
            source: Arc::clone(source),
            invalid,
        }))
    }
}

impl Deref for Owner {
    type Target = Arc<str>;

    fn deref(&self) -> &Arc<str> {
        &self.0.source
    }
}

/// A record with its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<R> {
    /// The record.
    pub record: R,
    /// Its owner.
    pub source: Owner,
}

impl<R> Stored<R> {
    /// Faults of a newer record that was refused; this one is the last good one.
    pub fn invalid(&self) -> Option<&Faults> {
        self.source.0.invalid.as_ref()
    }
}

/// The kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
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
        assert_eq!(size_of::<Stored<TaskRecord>>() + 2 * size_of::<usize>(), 14 * 8);
    }
}
