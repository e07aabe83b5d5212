//! Topology domains: nodes with the same value of a label.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster_state::ClusterState;
use crate::model::constraints::{PodAffinityTerm, PodConstraints};
use crate::model::pod_identity::PodIdentity;
use crate::model::stored::NodeSlot;
use crate::model::text_map::find_text;
use crate::short_lock::ShortLock;

/// Number of a slot without a domain.
const NO_DOMAIN: u32 = u32::MAX;

/// Domains of one topology key: nodes with the same value of this label are one domain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TopologyDomains {
    /// Number of the domain of each slot.
    numbers: Vec<u32>,
    /// Number of domains.
    count: usize,
    /// Number of the domain of the empty value, which may have no node.
    unlabelled: usize,
    /// True if each node is in a domain of its own.
    one_node_each: bool,
}

impl TopologyDomains {
    fn of(cluster_state: &ClusterState, key: &str) -> Self {
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        let mut numbers = vec![NO_DOMAIN; cluster_state.slots() as usize];
        let mut nodes = 0;
        for (slot, entry) in cluster_state.nodes() {
            nodes += 1;
            let Some(value) = find_text(&entry.record.labels, key) else {
                continue;
            };
            let next = u32::try_from(known.len()).unwrap_or(NO_DOMAIN);
            if let Some(place) = numbers.get_mut(slot as usize) {
                *place = *known.entry(value).or_insert(next);
            }
        }
        Self {
            numbers,
            count: known.len(),
            unlabelled: known.get("").map_or(known.len(), |number| *number as usize),
            one_node_each: known.len() == nodes,
        }
    }

    /// Number of the domain of a node, less than [`Self::count`]; `None`: the node has no such label.
    pub fn domain(&self, slot: NodeSlot) -> Option<usize> {
        let number = self.numbers.get(slot as usize).filter(|number| **number != NO_DOMAIN);
        number.map(|number| *number as usize)
    }

    /// Number of the domain of a node, at most [`Self::count`], where a node without the label is in the domain of the empty
    /// value.
    pub fn domain_or_unlabelled(&self, slot: NodeSlot) -> usize {
        self.domain(slot).unwrap_or(self.unlabelled)
    }

    /// Number of domains.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl ClusterState {
    /// True if pods with these constraints keep each other off by required terms, and only off the node that each is on:
    /// every node is a domain of its own.
    pub fn repel_each_other_by_node(&self, constraints: &PodConstraints, pod: &PodIdentity) -> bool {
        let matches = |term: &&PodAffinityTerm| term.may_match(&pod.namespace, pod);
        let mut own = constraints.pod_anti_affinity.required.iter().filter(matches).peekable();
        let is_by_node = |term: &PodAffinityTerm| {
            !term.needs_namespaces() && self.topology_domains(&term.topology_key).one_node_each
        };
        own.peek().is_some() && own.all(is_by_node)
    }
}

/// Number of topology keys whose domains are remembered.
const REMEMBERED_KEYS: usize = 16;

/// Domains by topology key, computed at the first question. States whose nodes have the same labels share them.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct TopologyCache(Arc<ShortLock<BTreeMap<Arc<str>, Arc<TopologyDomains>>>>);

impl TopologyCache {
    pub(in crate::model) fn domains(&self, cluster_state: &ClusterState, key: &Arc<str>) -> Arc<TopologyDomains> {
        if let Some(known) = self.0.with(|known| known.get(key).cloned()) {
            return known;
        }
        let domains = Arc::new(TopologyDomains::of(cluster_state, key));
        self.0.with(|known| {
            if known.len() < REMEMBERED_KEYS {
                known.insert(Arc::clone(key), Arc::clone(&domains));
            }
        });
        domains
    }
}
