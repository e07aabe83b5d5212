//! Marks on topology domains.

use std::sync::Arc;

use crate::model::{ClusterState, NodeSlot, TopologyDomains};
use crate::plugin::{DomainPeers, PeerKey};

/// Domains of one topology key, some of them marked.
#[derive(Debug)]
struct MarkedDomains {
    key: Arc<str>,
    domains: Arc<TopologyDomains>,
    marked: Vec<bool>,
    any: bool,
    peers: DomainPeers,
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
            peers: DomainPeers::default(),
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

    /// Splits the nodes into peers by their domains, in a cluster with this many slots.
    pub(super) fn split(&mut self, slots: NodeSlot) {
        for own in &mut self.0 {
            own.peers = DomainPeers::of(&own.domains, slots);
        }
    }

    /// Number of topology keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends the numbers of a node, one by key.
    pub(super) fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        for own in &self.0 {
            let mark = |domain: usize| i64::from(own.marked.get(domain) == Some(&true));
            key.push(own.peers.number(own.domains.domain(slot), mark));
        }
    }

    /// Marks the domain of a node, and appends the other nodes whose numbers are different now.
    pub(super) fn mark_peers(&mut self, position: usize, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        let own = self.0.get(position);
        let before = own.and_then(|own| own.is_marked(slot));
        self.mark(position, slot);
        let own = self.0.get(position).filter(|_| before == Some(false));
        if let Some((own, domain)) = own.and_then(|own| Some((own, own.domains.domain(slot)?))) {
            own.peers.append_changed(domain, slot, changed);
        }
    }

    /// Marks of the domains of nodes with these numbers, by key; `None`: the nodes lack the key.
    pub(super) fn marks_of<'s>(&'s self, key: &'s [i64]) -> impl Iterator<Item = Option<bool>> + 's {
        let numbered = self.0.iter().zip(key);
        numbered.map(|(own, number)| {
            let mark = |domain: usize| i64::from(own.marked.get(domain) == Some(&true));
            own.peers.value(*number, mark).map(|mark| mark != 0)
        })
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
