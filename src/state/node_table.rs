//! Node table: slots of nodes by name, readable while the table grows.

use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;

use crate::engine::model::{NodeIndex, NodeSlot};

/// Slots of nodes in one generation of the table. The table only grows: a name keeps its slot, and a slot its name.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    slots: DashMap<Arc<str>, NodeSlot>,
    /// Names by slot.
    names: RwLock<Vec<Arc<str>>>,
}

impl NodeTable {
    /// Assigns a slot to a name that has none. Only the writer calls this.
    pub(super) fn assign_slot(&self, name: &Arc<str>) {
        if self.slots.contains_key(name) {
            return;
        }
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(next) = NodeSlot::try_from(names.len()) {
            names.push(Arc::clone(name));
            self.slots.insert(Arc::clone(name), next);
        }
    }

    /// Number of assigned slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

impl NodeIndex for NodeTable {
    fn slot(&self, name: &str) -> Option<NodeSlot> {
        self.slots.get(name).map(|slot| *slot)
    }

    fn name(&self, slot: NodeSlot) -> Option<Arc<str>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(slot as usize).cloned()
    }
}
