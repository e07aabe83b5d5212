//! Labels of records that are stored only while some policy reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds of records whose labels are read, for any label names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelKinds {
    /// True if labels of nodes are read.
    pub nodes: bool,
    /// True if labels of tasks are read.
    pub tasks: bool,
}

/// Labels that were left out of the records of sources, by source; sources without such labels are left out.
pub type DroppedLabels = Arc<BTreeMap<Arc<str>, LabelKinds>>;

impl LabelKinds {
    /// Nodes and tasks.
    pub const ALL: Self = Self {
        nodes: true,
        tasks: true,
    };

    /// Kinds of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            nodes: self.nodes || other.nodes,
            tasks: self.tasks || other.tasks,
        }
    }

    /// True if a kind is in both.
    pub fn intersects(self, other: Self) -> bool {
        self.nodes && other.nodes || self.tasks && other.tasks
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}
