//! Topology spread constraints that reject nodes.

use std::sync::Arc;

use super::PodView;
use crate::model::constraints::{NodeSelectorTerm, SpreadConstraint, SpreadPolicy, Taint};
use crate::model::{CHUNK_SIZE, NodeChunk, NodeMask, NodeSlot, TopologyDomains};
use crate::plugin::{DomainPeers, PeerFilter, PeerHook, PeerKey};

/// Prepared filter of the spread constraints with `DoNotSchedule`.
#[derive(Debug)]
pub(in crate::plugins) struct SpreadFilter {
    rules: Vec<SpreadRule>,
}

/// Domains of one constraint.
#[derive(Debug)]
struct SpreadRule {
    domains: Arc<TopologyDomains>,
    /// Number of matching pods in each domain. `None`: the domain has no eligible node.
    counts: Vec<Option<i64>>,
    /// Smallest number to which others are compared.
    least: LeastCount,
    /// Maximum difference, minus 1 if the pod itself matches.
    max_difference: i64,
    /// Nodes on which pods of the class match, chunk by chunk. Empty if they match nowhere.
    own: Vec<NodeMask>,
    peers: DomainPeers,
}

/// Smallest number of pods in a domain.
#[derive(Debug)]
struct LeastCount {
    value: i64,
    /// Number of domains with this number; `None`: too few domains exist, and the smallest number is 0.
    domains: Option<usize>,
}

/// Rejected nodes of a chunk, by reason; a node has at most one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::plugins) struct SpreadRejections {
    /// Nodes without a topology key.
    pub(in crate::plugins) missing_label: NodeMask,
    /// Nodes in domains with too many pods.
    pub(in crate::plugins) skew: NodeMask,
}

impl SpreadFilter {
    /// Filter of a class; `None`: it has no such constraint.
    pub(in crate::plugins) fn new(view: &PodView<'_>) -> Option<Self> {
        let constraints = view.spread_constraints();
        let hard = || constraints.iter().filter(|own| own.is_hard);
        hard().next()?;
        let mut eligible = EligibleNodes::with_labels(view, hard());
        let rules = hard().map(|constraint| {
            let nodes = eligible.of(constraint);
            SpreadRule::new(view, constraint, nodes)
        });
        Some(Self { rules: rules.collect() })
    }

    /// Rejected nodes of a chunk.
    pub(in crate::plugins) fn judge(&self, chunk: &NodeChunk, among: &NodeMask) -> SpreadRejections {
        let mut rejections = SpreadRejections::default();
        for offset in among.iter() {
            let Some(slot) = chunk.slot(offset) else { continue };
            for rule in &self.rules {
                let Some(domain) = rule.domains.domain(slot) else {
                    rejections.missing_label.set(offset, true);
                    break;
                };
                if rule.is_exceeded(rule.count(domain)) {
                    rejections.skew.set(offset, true);
                    break;
                }
            }
        }
        rejections
    }
}

impl SpreadRule {
    fn new(view: &PodView<'_>, constraint: &SpreadConstraint, nodes: Vec<NodeMask>) -> Self {
        let domains = view.cluster_state.topology_domains(&constraint.topology_key);
        let counted = CountedDomains {
            domains: Arc::clone(&domains),
            with_unlabelled: false,
        };
        let counts = domain_counts(view, constraint, &counted, &nodes);
        let min_domains = usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(0);
        let labels = &view.pod.labels;
        let own = i64::from(constraint.selects(labels, labels));
        Self {
            least: LeastCount::of(&counts, min_domains),
            max_difference: i64::from(constraint.max_skew) - own,
            own: if counts_itself(view, constraint) {
                nodes
            } else {
                Vec::new()
            },
            counts,
            domains,
            peers: DomainPeers::default(),
        }
    }

    /// True if one more pod in a domain with this number exceeds the skew.
    fn is_exceeded(&self, count: i64) -> bool {
        count - self.least.value > self.max_difference
    }

    fn count(&self, domain: usize) -> i64 {
        self.counts.get(domain).copied().flatten().unwrap_or(0)
    }
}

impl LeastCount {
    fn of(counts: &[Option<i64>], min_domains: usize) -> Self {
        let present = || counts.iter().flatten().copied();
        let least = present().min().filter(|_| present().count() >= min_domains);
        Self {
            value: least.unwrap_or(0),
            domains: least.map(|least| present().filter(|count| *count == least).count()),
        }
    }

    /// Follows a domain that had this number of pods and has one more.
    fn add_pod(&mut self, before: i64, counts: &[Option<i64>]) {
        let Some(domains) = self.domains.as_mut().filter(|_| before == self.value) else {
            return;
        };
        *domains -= 1;
        if *domains == 0 {
            *self = Self::of(counts, 0);
        }
    }
}

/// True if pods of the class match the class's own constraint.
pub(super) fn counts_itself(view: &PodView<'_>, constraint: &SpreadConstraint) -> bool {
    let labels = &view.pod.labels;
    !constraint.counts_nothing(labels) && constraint.selects(labels, labels)
}

/// True if a node is in the set.
pub(super) fn is_among(nodes: &[NodeMask], slot: NodeSlot) -> bool {
    let mask = nodes.get(slot as usize / CHUNK_SIZE);
    mask.is_some_and(|mask| mask.get(slot as usize % CHUNK_SIZE))
}

impl SpreadFilter {
    /// Filter that follows placements of the class.
    pub(in crate::plugins) fn following(mut self, view: &PodView<'_>) -> Self {
        for rule in &mut self.rules {
            rule.peers = DomainPeers::of(&rule.domains, view.cluster_state.slots());
        }
        self
    }
}

impl PeerHook for SpreadFilter {
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        for rule in &self.rules {
            let domain = rule.domains.domain(slot);
            key.push(rule.peers.number(domain, |domain| rule.count(domain)));
        }
    }

    fn place(&mut self, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        for rule in &mut self.rules {
            let Some(domain) = rule.domains.domain(slot).filter(|_| is_among(&rule.own, slot)) else {
                continue;
            };
            let Some(count) = rule.counts.get_mut(domain).and_then(Option::as_mut) else {
                continue;
            };
            *count += 1;
            let before = *count - 1;
            rule.least.add_pod(before, &rule.counts);
            rule.peers.append_changed(domain, slot, changed);
        }
    }
}

impl PeerFilter for SpreadFilter {
    fn passes(&self, key: &[i64]) -> bool {
        let mut numbered = self.rules.iter().zip(key);
        numbered.all(|(rule, number)| {
            let count = rule.peers.value(*number, |domain| rule.count(domain));
            count.is_some_and(|count| !rule.is_exceeded(count))
        })
    }
}

/// Domains of a constraint, with their numbers of pods.
#[derive(Clone, Debug)]
pub(super) struct CountedDomains {
    pub(super) domains: Arc<TopologyDomains>,
    /// True if nodes without the label are in the domain of the empty value, else in none.
    pub(super) with_unlabelled: bool,
}

impl CountedDomains {
    /// Number of the domain of a node, less than [`Self::count`]; `None`: it is in none.
    pub(super) fn domain(&self, slot: NodeSlot) -> Option<usize> {
        if self.with_unlabelled {
            Some(self.domains.domain_or_unlabelled(slot))
        } else {
            self.domains.domain(slot)
        }
    }

    /// Number of domains, including a domain that may be empty.
    pub(super) fn count(&self) -> usize {
        self.domains.count() + usize::from(self.with_unlabelled)
    }
}

/// Number of pods that a constraint selects in each domain, over these nodes; `None`: the domain has none of the nodes.
pub(super) fn domain_counts(
    view: &PodView<'_>,
    constraint: &SpreadConstraint,
    domains: &CountedDomains,
    nodes: &[NodeMask],
) -> Vec<Option<i64>> {
    let mut counts = vec![None; domains.count()];
    for (number, mask) in nodes.iter().enumerate() {
        for offset in mask.iter() {
            let slot = NodeSlot::try_from(number * CHUNK_SIZE + offset).ok();
            let domain = slot.and_then(|slot| domains.domain(slot));
            if let Some(place) = domain.and_then(|domain| counts.get_mut(domain)) {
                *place = Some(0);
            }
        }
    }
    for (slot, count) in selected_pods(view, constraint) {
        let domain = domains.domain(*slot).filter(|_| is_among(nodes, *slot));
        if let Some(Some(place)) = domain.and_then(|domain| counts.get_mut(domain)) {
            *place += i64::from(*count);
        }
    }
    counts
}

/// Numbers of the pods that a constraint selects, by slot.
pub(super) fn selected_pods<'a>(
    view: &PodView<'a>,
    constraint: &SpreadConstraint,
) -> impl Iterator<Item = &'a (NodeSlot, u32)> {
    let (pod, counts_nothing) = (view.pod, constraint.counts_nothing(&view.pod.labels));
    let selected = view.classes().filter(move |(class, _)| {
        let counted = !counts_nothing && !class.is_releasing && class.pod.namespace == pod.namespace;
        counted && constraint.selects(&pod.labels, &class.pod.labels)
    });
    selected.flat_map(|(_, on_nodes)| on_nodes)
}

/// Eligible nodes for the constraints of one class. Pods on other nodes are ignored.
pub(super) struct EligibleNodes<'a> {
    view: PodView<'a>,
    /// Nodes with all topology keys, chunk by chunk.
    with_keys: Vec<NodeMask>,
    /// Nodes that the node selector and the required node affinity select, from the first question about them.
    selected: Option<Vec<NodeMask>>,
    /// Nodes with taints that the class does not tolerate, likewise.
    tainted: Option<Vec<NodeMask>>,
}

impl<'a> EligibleNodes<'a> {
    /// Nodes that have the topology keys of all constraints.
    pub(super) fn with_labels<'c>(view: &PodView<'a>, constraints: impl Iterator<Item = &'c SpreadConstraint>) -> Self {
        let keys: Vec<&Arc<str>> = constraints.map(|constraint| &constraint.topology_key).collect();
        let with_keys = |chunk: &Arc<NodeChunk>| {
            let attributes = chunk.attributes();
            let keyed = keys.iter().map(|key| attributes.with_label(key));
            keyed.fold(*chunk.live(), |all, with| all.and(&with))
        };
        Self {
            view: *view,
            with_keys: view.cluster_state.chunks().iter().map(with_keys).collect(),
            selected: None,
            tainted: None,
        }
    }

    /// Nodes of a constraint, chunk by chunk.
    pub(super) fn of(&mut self, constraint: &SpreadConstraint) -> Vec<NodeMask> {
        let mut nodes = self.with_keys.clone();
        let view = self.view;
        if constraint.node_affinity_policy == SpreadPolicy::Honor {
            let selected = self.selected.get_or_insert_with(|| selected_nodes(&view));
            let pairs = nodes.iter_mut().zip(selected.iter());
            pairs.for_each(|(own, selected)| *own = own.and(selected));
        }
        if constraint.node_taints_policy == SpreadPolicy::Honor {
            let tainted = self.tainted.get_or_insert_with(|| tainted_nodes(&view));
            let pairs = nodes.iter_mut().zip(tainted.iter());
            pairs.for_each(|(own, tainted)| *own = own.and_not(tainted));
        }
        nodes
    }
}

/// Nodes that the class's node selector and required node affinity select, chunk by chunk.
fn selected_nodes(view: &PodView<'_>) -> Vec<NodeMask> {
    let constraints = view.constraints;
    let can_match = |term: &&NodeSelectorTerm| !term.is_empty() && term.is_valid();
    let chunks = view.cluster_state.chunks().iter();
    let selected = chunks.map(|chunk| {
        let attributes = chunk.attributes();
        let selected = attributes.with_labels(&constraints.node_selector);
        let Some(terms) = &constraints.required_node_terms else {
            return selected;
        };
        let matching = terms.iter().filter(can_match).map(|term| attributes.matching(term));
        selected.and(&matching.fold(NodeMask::NONE, |any, nodes| any.or(&nodes)))
    });
    selected.collect()
}

/// Nodes with a taint that the class does not tolerate, chunk by chunk.
fn tainted_nodes(view: &PodView<'_>) -> Vec<NodeMask> {
    let tolerations = &view.constraints.tolerations;
    let is_tolerated = |taint: &Taint| tolerations.iter().any(|toleration| toleration.tolerates(taint));
    let rejects = |taint: &Taint| taint.rejects() && !is_tolerated(taint);
    let chunks = view.cluster_state.chunks().iter();
    chunks
        .map(|chunk| chunk.attributes().select_taints(|taints| taints.iter().any(rejects)))
        .collect()
}
