//! Node table: slots of nodes by name, readable while the table grows.

use std::array;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;

use pumice_engine::model::{NodeIndex, NodeSlot};

/// Names in the first block. Each further block has twice as many.
const FIRST_BLOCK: usize = 256;
/// Number of blocks: enough for every slot.
const BLOCKS: usize = 25;

/// Names of consecutive slots, allocated together.
type NameBlock = Box<[OnceLock<Arc<str>>]>;

/// Slots of nodes in one generation of the table. The table only grows: a name keeps its slot, and a slot its name.
#[derive(Debug)]
pub(crate) struct NodeTable {
    slots: DashMap<Arc<str>, NodeSlot>,
    /// Names by slot. Blocks never move, so readers need no lock while the table grows.
    names: [OnceLock<NameBlock>; BLOCKS],
}

impl Default for NodeTable {
    fn default() -> Self {
        Self {
            slots: DashMap::new(),
            names: array::from_fn(|_| OnceLock::new()),
        }
    }
}

/// Number of a slot's block, and the slot's place in it.
fn block_of(slot: usize) -> (usize, usize) {
    let block = (slot / FIRST_BLOCK + 1).ilog2() as usize;
    (block, slot - FIRST_BLOCK * ((1 << block) - 1))
}

impl NodeTable {
    /// Assigns a slot to a name that has none. Only the writer calls this.
    pub(crate) fn assign_slot(&self, name: &Arc<str>) {
        if self.slots.contains_key(name) {
            return;
        }
        let next = self.slots.len();
        let (block, place) = block_of(next);
        let names = self.names.get(block).map(|block_names| {
            block_names.get_or_init(|| (0..FIRST_BLOCK << block).map(|_| OnceLock::new()).collect())
        });
        if let (Ok(slot), Some(free)) = (NodeSlot::try_from(next), names.and_then(|names| names.get(place))) {
            free.get_or_init(|| Arc::clone(name));
            self.slots.insert(Arc::clone(name), slot);
        }
    }

    /// Number of assigned slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

impl NodeIndex for NodeTable {
    fn slot(&self, name: &str) -> Option<NodeSlot> {
        self.slots.get(name).map(|slot| *slot)
    }

    fn name(&self, slot: NodeSlot) -> Option<Arc<str>> {
        let (block, place) = block_of(slot as usize);
        self.names.get(block)?.get()?.get(place)?.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_names_find_each_other_over_all_blocks() {
        let table = NodeTable::default();
        let names: Vec<Arc<str>> = (0..2_000).map(|number| format!("n{number}").into()).collect();
        for name in names.iter().chain(&names) {
            table.assign_slot(name);
        }
        assert_eq!(table.len(), 2_000);
        for (slot, name) in (0..).zip(&names) {
            assert_eq!((table.slot(name), table.name(slot).as_ref()), (Some(slot), Some(name)));
        }
        assert_eq!((table.slot("other"), table.name(2_000)), (None, None));
        assert_eq!(table.name(NodeSlot::MAX), None);
        assert!(block_of(NodeSlot::MAX as usize).0 < BLOCKS);
        assert_eq!(
            [0, 255, 256, 767, 768].map(block_of),
            [(0, 0), (0, 255), (1, 0), (1, 511), (2, 0)]
        );
    }
}
