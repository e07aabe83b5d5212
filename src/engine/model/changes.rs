//! How a View differs from an older one: found by pointers, so that what both share costs nothing.

use std::sync::Arc;

use super::chunk::{CHUNK, Chunk};
use super::node::NodeEntry;
use super::records::{JobRecord, QueueRecord, TaskRecord};
use super::stored::Stored;
use super::table::Table;
use super::view::{Slot, View};

/// Two Views of one history.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// The older one.
    pub old: &'a View,
    /// The newer one.
    pub new: &'a View,
}

/// A record in the older View and in the newer; at least one of them, and not equal ones.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a, R> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// As it was.
    pub before: Option<&'a R>,
    /// As it is.
    pub after: Option<&'a R>,
}

/// A node in the older View and in the newer, at its slot.
#[derive(Clone, Copy, Debug)]
pub struct ChangedNode<'a> {
    /// The slot.
    pub slot: Slot,
    /// As it was.
    pub before: Option<&'a Arc<NodeEntry>>,
    /// As it is.
    pub after: Option<&'a Arc<NodeEntry>>,
}

impl<'a> Changes<'a> {
    /// True if slots mean the same nodes in both.
    pub fn same_slots(&self) -> bool {
        self.old.generation() == self.new.generation()
    }

    /// Nodes whose records differ, by slot; what tasks use of a node is not looked at.
    pub fn nodes(&self) -> Vec<ChangedNode<'a>> {
        let (old, new) = (self.old.chunks(), self.new.chunks());
        let mut changed = Vec::new();
        for number in 0..old.len().max(new.len()) {
            let (old, new) = (old.get(number), new.get(number));
            if let (Some(old), Some(new)) = (old, new)
                && Arc::ptr_eq(old, new)
            {
                continue;
            }
            let entry = |chunk: Option<&'a Arc<Chunk>>, offset| chunk.and_then(|chunk| chunk.entry(offset));
            for offset in 0..CHUNK {
                let (before, after) = (entry(old, offset), entry(new, offset));
                let same = match (before, after) {
                    (None, None) => true,
                    (Some(before), Some(after)) => {
                        Arc::ptr_eq(&before.record, &after.record) || before.record == after.record
                    }
                    (Some(_), None) | (None, Some(_)) => false,
                };
                if let (false, Ok(slot)) = (same, Slot::try_from(number * CHUNK + offset)) {
                    changed.push(ChangedNode { slot, before, after });
                }
            }
        }
        changed
    }

    /// Queues whose records differ, by name.
    pub fn queues(&self) -> Vec<Changed<'a, QueueRecord>> {
        records(self.old.queues(), self.new.queues())
    }

    /// Jobs whose records differ, by name.
    pub fn jobs(&self) -> Vec<Changed<'a, JobRecord>> {
        records(self.old.jobs(), self.new.jobs())
    }

    /// Tasks whose records differ, by name.
    pub fn tasks(&self) -> Vec<Changed<'a, TaskRecord>> {
        records(self.old.tasks(), self.new.tasks())
    }
}

fn records<'a, R: PartialEq>(old: &'a Table<Arc<Stored<R>>>, new: &'a Table<Arc<Stored<R>>>) -> Vec<Changed<'a, R>> {
    let same = |a: &Arc<Stored<R>>, b: &Arc<Stored<R>>| Arc::ptr_eq(a, b) || a.record == b.record;
    let differences = old.differences(new, same).into_iter();
    differences
        .map(|(name, before, after)| Changed {
            name,
            before: before.map(|stored| &stored.record),
            after: after.map(|stored| &stored.record),
        })
        .collect()
}
