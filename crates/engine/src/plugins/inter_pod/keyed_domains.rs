//! Values of topology domains, by topology key.

use std::sync::Arc;

use crate::model::{ClusterState, NodeSlot, TopologyDomains};
use crate::plugin::{DomainPeers, PeerKey};

/// Values of the domains of one topology key.
#[derive(Debug)]
pub(super) struct DomainValues<T> {
    key: Arc<str>,
    domains: Arc<TopologyDomains>,
    values: Vec<T>,
    /// True if the value of some domain was changed.
    pub(super) is_changed: bool,
    peers: DomainPeers,
}

impl<T: Copy + Default + Into<i64>> DomainValues<T> {
    /// Value of the domain of a node; `None`: it is in none.
    pub(super) fn at(&self, slot: NodeSlot) -> Option<T> {
        self.values.get(self.domains.domain(slot)?).copied()
    }

    fn number(&self, domain: usize) -> i64 {
        self.values.get(domain).copied().unwrap_or_default().into()
    }
}

/// Values of domains by topology key; terms with the same key share them.
#[derive(Debug, Default)]
pub(super) struct KeyedDomains<T>(Vec<DomainValues<T>>);

impl<T: Copy + Default + Into<i64>> KeyedDomains<T> {
    /// Position of a key, which is added if it is new.
    pub(super) fn position(&mut self, cluster_state: &ClusterState, key: &Arc<str>) -> usize {
        if let Some(at) = self.0.iter().position(|own| own.key == *key) {
            return at;
        }
        let domains = cluster_state.topology_domains(key);
        self.0.push(DomainValues {
            key: Arc::clone(key),
            values: vec![T::default(); domains.count()],
            domains,
            is_changed: false,
            peers: DomainPeers::default(),
        });
        self.0.len() - 1
    }

    /// Number of topology keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Values of each key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DomainValues<T>> {
        self.0.iter()
    }

    /// Value of the domain of a node; `None`: there is none.
    pub(super) fn get(&self, position: usize, slot: NodeSlot) -> Option<T> {
        self.0.get(position)?.at(slot)
    }

    /// Changes the value of the domain of a node, if it is in one.
    pub(super) fn change(&mut self, position: usize, slot: NodeSlot, change: impl FnOnce(&mut T)) {
        let Some(own) = self.0.get_mut(position) else { return };
        if let Some(value) = own.domains.domain(slot).and_then(|domain| own.values.get_mut(domain)) {
            change(value);
            own.is_changed = true;
        }
    }

    /// Splits the nodes into peers by their domains, in a cluster with this many slots.
    pub(super) fn split(&mut self, slots: NodeSlot) {
        for own in &mut self.0 {
            own.peers = DomainPeers::of(&own.domains, slots);
        }
    }

    /// Appends the numbers of a node, one by key.
    pub(super) fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        for own in &self.0 {
            key.push(own.peers.number(own.domains.domain(slot), |domain| own.number(domain)));
        }
    }

    /// Appends the other nodes of the domain of a node, whose numbers are different now.
    pub(super) fn append_changed(&self, position: usize, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        let own = self.0.get(position);
        if let Some((own, domain)) = own.and_then(|own| Some((own, own.domains.domain(slot)?))) {
            own.peers.append_changed(domain, slot, changed);
        }
    }

    /// Values of the domains of nodes with these numbers, by key; `None`: the nodes lack the key.
    pub(super) fn values_of<'s>(&'s self, key: &'s [i64]) -> impl Iterator<Item = Option<i64>> + 's {
        let numbered = self.0.iter().zip(key);
        numbered.map(|(own, number)| own.peers.value(*number, |domain| own.number(domain)))
    }
}
