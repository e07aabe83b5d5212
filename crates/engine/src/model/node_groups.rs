//! Affinity of queues to groups of nodes.

use crate::held_bytes::held_bytes;
use std::sync::Arc;

/// Affinity of a queue to groups of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAffinity {
    /// Groups that the queue uses.
    pub affinity: NodeGroupLists,
    /// Groups that the queue avoids.
    pub anti_affinity: NodeGroupLists,
}

held_bytes! { QueueAffinity { affinity, anti_affinity } }

/// Groups of nodes, as a queue's affinity lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroupLists {
    /// Groups that tasks of the queue must use. Empty: any group.
    pub required: Vec<Arc<str>>,
    /// Preferred groups, the most preferred one first.
    pub preferred: Vec<Arc<str>>,
}

held_bytes! { NodeGroupLists { required, preferred } }

impl NodeGroupLists {
    /// True if no group is listed.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }

    /// True if the required list has a group.
    pub fn requires(&self, group: &str) -> bool {
        self.required.iter().any(|own| **own == *group)
    }

    /// True if the preferred list has a group.
    pub fn prefers(&self, group: &str) -> bool {
        self.preferred.iter().any(|own| **own == *group)
    }
}

impl QueueAffinity {
    /// True if no list has a group.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty()
    }

    /// Bytes of memory that the lists of groups hold.
    pub fn text_bytes(&self) -> usize {
        let lists = [&self.affinity, &self.anti_affinity];
        let names = lists
            .into_iter()
            .flat_map(|own| own.required.iter().chain(&own.preferred));
        names.map(|name| size_of::<Arc<str>>() + name.len()).sum()
    }
}
