//! The node table: names to slots, readable while it grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::DashMap;

use crate::engine::model::{NodeIndex, Slot};

/// Names to slots of one generation. It only grows: a name keeps its slot, a slot its name.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    slots: DashMap<Arc<str>, Slot>,
    next: AtomicU32,
}

impl NodeTable {
    /// Gives a name a slot, if it has none. To be called by the writer only.
    pub(super) fn admit(&self, name: &Arc<str>) {
        if !self.slots.contains_key(name) {
            self.slots
                .insert(Arc::clone(name), self.next.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Number of slots given.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

impl NodeIndex for NodeTable {
    fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).map(|slot| *slot)
    }
}
