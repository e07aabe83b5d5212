//! Marks on topology domains.

use std::sync::Arc;

use crate::model::{ClusterState, NodeSlot, TopologyDomains};

/// Domains of one topology key, some of them marked.
#[derive(Debug)]
struct MarkedDomains {
    key: Arc<str>,
    domains: Arc<TopologyDomains>,
    marked: Vec<bool>,
    any: bool,
}

/// Marked domains by topology key; terms with the same key share their marks.
#[derive(Debug, Default)]
pub(super) struct DomainMarks(Vec<MarkedDomains>);

impl DomainMarks {
    /// Position of a key, which is added if it is new.
    pub(super) fn position(&mut self, cluster_state: &ClusterState, key: &Arc<str>) -> usize {
        if let Some(at) = self.0.iter().position(|own| own.key == *key) {
            return at;
        }
        let domains = cluster_state.topology_domains(key);
        self.0.push(MarkedDomains {
            key: Arc::clone(key),
            marked: vec![false; domains.count()],
            domains,
            any: false,
        });
        self.0.len() - 1
    }

    /// Marks the domain of a node.
    pub(super) fn mark(&mut self, position: usize, slot: NodeSlot) {
        let Some(own) = self.0.get_mut(position) else { return };
        if let Some(place) = own.domains.domain(slot).and_then(|domain| own.marked.get_mut(domain)) {
            *place = true;
            own.any = true;
        }
    }

    /// True if no domain is marked.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.iter().any(|own| own.any)
    }

    /// True if a node is in a marked domain of some key.
    pub(super) fn marks_any(&self, slot: NodeSlot) -> bool {
        let mut keys = self.0.iter().filter(|own| own.any);
        keys.any(|own| own.is_marked(slot) == Some(true))
    }

    /// True if a node is in a marked domain of each key; `None`: it lacks one of the keys.
    pub(super) fn marks_all(&self, slot: NodeSlot) -> Option<bool> {
        let mut all = true;
        for own in &self.0 {
            all &= own.is_marked(slot)?;
        }
        Some(all)
    }
}

impl MarkedDomains {
    /// True if the node's domain is marked; `None`: it is in none.
    fn is_marked(&self, slot: NodeSlot) -> Option<bool> {
        let domain = self.domains.domain(slot)?;
        self.marked.get(domain).copied()
    }
}
