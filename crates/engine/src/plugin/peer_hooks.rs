//! Hooks for which each placement changes verdicts on other nodes. Nodes are grouped into peers: nodes with equal keys
//! have equal verdicts. A placement then changes a few keys and verdicts instead of every node. For example, with three
//! zones a spread constraint has at most three keys.

use smallvec::SmallVec;

use crate::model::{NodeSlot, Problem, TopologyDomains};

/// Numbers that determine the verdicts of hooks on a node. Nodes with equal keys are peers.
pub type PeerKey = SmallVec<[i64; 8]>;

/// Sentinel: the node does not belong to a domain.
pub const NO_DOMAIN: i64 = i64::MIN;

/// Hook that evaluates peers and is updated with the placements of its task class.
pub trait PeerHook {
    /// Appends the numbers that determine the hook's verdict on a node. Their number is constant.
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey);

    /// True if no placement changes a key.
    fn is_static(&self) -> bool {
        false
    }

    /// Adds a task of the class to a ready node. Appends the other nodes whose numbers changed.
    fn place(&mut self, slot: NodeSlot, changed: &mut Vec<NodeSlot>);
}

/// Filter that evaluates groups of nodes with equal keys (peers).
pub trait PeerFilter: PeerHook {
    /// True if nodes with these numbers pass.
    fn passes(&self, key: &[i64]) -> bool;
}

/// Score of peers: one part of a plugin's score.
pub trait PeerScorer: PeerHook {
    /// Sees the candidates: the numbers of peers, and how many candidates have them.
    ///
    /// # Errors
    /// The candidates cannot be scored.
    fn survey(&mut self, peers: &mut dyn Iterator<Item = (&[i64], usize)>) -> Result<(), Problem>;

    /// Score of the candidates with these numbers.
    fn score(&self, key: &[i64]) -> i64;
}

/// Largest mean number of nodes in a domain whose value is a number of each node; the domain is the number where it is larger.
const SMALL_DOMAIN: usize = 16;

/// Choice of the number of a node by a topology key. Many small domains would make as many peers: there the value of the
/// domain is the number, and its nodes change keys with it.
#[derive(Clone, Debug, Default)]
pub struct DomainPeers {
    /// Nodes by domain. `None`: the number of a node is the number of its domain.
    nodes: Option<Vec<Vec<NodeSlot>>>,
}

impl DomainPeers {
    /// Choice for a topology key of a cluster with this many slots.
    pub fn of(domains: &TopologyDomains, slots: NodeSlot) -> Self {
        if slots as usize > domains.count().saturating_mul(SMALL_DOMAIN) {
            return Self::default();
        }
        let mut nodes = vec![Vec::new(); domains.count()];
        for slot in 0..slots {
            if let Some(own) = domains.domain(slot).and_then(|domain| nodes.get_mut(domain)) {
                own.push(slot);
            }
        }
        Self { nodes: Some(nodes) }
    }

    /// Number of a node in a domain. `value` computes the number of the domain.
    pub fn number(&self, domain: Option<usize>, value: impl FnOnce(usize) -> i64) -> i64 {
        match (domain, &self.nodes) {
            (None, _) => NO_DOMAIN,
            (Some(domain), None) => i64::try_from(domain).unwrap_or(i64::MAX),
            (Some(domain), Some(_)) => value(domain),
        }
    }

    /// Value of the domain of a number; `None`: the node has no domain.
    pub fn value(&self, number: i64, value: impl FnOnce(usize) -> i64) -> Option<i64> {
        match &self.nodes {
            _ if number == NO_DOMAIN => None,
            None => Some(usize::try_from(number).map_or(0, value)),
            Some(_) => Some(number),
        }
    }

    /// Appends the other nodes of a domain whose value changed, if it is a number of each.
    pub fn append_changed(&self, domain: usize, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        let nodes = self.nodes.as_ref().and_then(|nodes| nodes.get(domain));
        changed.extend(nodes.into_iter().flatten().filter(|own| **own != slot));
    }
}
