//! Marks on topology domains.

use super::keyed_domains::KeyedDomains;
use crate::model::NodeSlot;

/// Marked domains by topology key.
pub(super) type DomainMarks = KeyedDomains<bool>;

impl DomainMarks {
    /// Marks the domain of a node.
    pub(super) fn mark(&mut self, position: usize, slot: NodeSlot) {
        self.change(position, slot, |mark| *mark = true);
    }

    /// Marks the domain of a node, and appends the other nodes whose numbers are different now.
    pub(super) fn mark_peers(&mut self, position: usize, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        let before = self.get(position, slot);
        self.mark(position, slot);
        if before == Some(false) {
            self.append_changed(position, slot, changed);
        }
    }

    /// Marks of the domains of nodes with these numbers, by key; `None`: the nodes lack the key.
    pub(super) fn marks_of<'s>(&'s self, key: &'s [i64]) -> impl Iterator<Item = Option<bool>> + 's {
        self.values_of(key).map(|mark| Some(mark? != 0))
    }

    /// True if some domain is marked.
    pub(super) fn has_marks(&self) -> bool {
        self.iter().any(|own| own.is_changed)
    }

    /// True if a node is in a marked domain of some key.
    pub(super) fn marks_any(&self, slot: NodeSlot) -> bool {
        let mut keys = self.iter().filter(|own| own.is_changed);
        keys.any(|own| own.at(slot) == Some(true))
    }

    /// True if a node is in a marked domain of each key; `None`: it lacks one of the keys.
    pub(super) fn marks_all(&self, slot: NodeSlot) -> Option<bool> {
        self.iter().try_fold(true, |all, own| Some(all & own.at(slot)?))
    }
}
