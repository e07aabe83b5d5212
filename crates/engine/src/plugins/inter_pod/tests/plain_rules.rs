//! Rules of filters about pods, written down plainly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::constraints::{
    LabelSelector, PodAffinityTerm, PodConstraints, SelectorRequirement, SpreadConstraint, SpreadPolicy,
};
use crate::model::{NodeRecord, TaskRecord, TaskStatus, TextMap, find_text};

/// Rules of the filters, node by node and pod by pod.
pub(super) struct PlainRules<'a> {
    pub(super) nodes: Vec<&'a NodeRecord>,
    /// Pods, each with its node.
    pub(super) pods: Vec<(&'a TaskRecord, &'a NodeRecord)>,
    pub(super) own: &'a TaskRecord,
    /// Labels of the known namespaces.
    pub(super) namespaces: &'a BTreeMap<&'static str, TextMap>,
    pub(super) constraints: &'a PodConstraints,
    pub(super) upstream: bool,
}

/// Topology pair.
pub(super) type TopologyPair = (Arc<str>, String);

fn selects(selector: &LabelSelector, labels: &TextMap) -> bool {
    let pairs = selector
        .match_labels
        .iter()
        .all(|(key, value)| find_text(labels, key) == Some(value));
    let requirement = |own: &SelectorRequirement| {
        let value = find_text(labels, &own.key);
        let listed = value.is_some_and(|value| own.values.iter().any(|other| **other == *value));
        match &*own.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    };
    pairs && selector.match_expressions.iter().all(requirement)
}

pub(super) fn pair(key: &Arc<str>, node: &NodeRecord) -> Option<TopologyPair> {
    Some((Arc::clone(key), find_text(&node.labels, key)?.to_owned()))
}

impl PlainRules<'_> {
    /// True if a term of `owner` selects another pod. A term of the class lists the namespaces that its selector
    /// matches. Under `upstream` it selects every pod if the selector matches no labels. A term of another pod uses the
    /// labels of the class's namespace.
    pub(super) fn holds(&self, term: &PodAffinityTerm, owner: &TaskRecord, other: &TaskRecord) -> bool {
        let namespace = other.namespace();
        let known = self.namespaces.get(namespace);
        let in_namespace = match &term.namespace_selector {
            None if term.namespaces.is_empty() => namespace == owner.namespace(),
            None => false,
            Some(selector) if selector.is_empty() => true,
            Some(selector) if std::ptr::eq(owner, self.own) => {
                let everywhere = self.upstream && selects(selector, &TextMap::default());
                everywhere || known.is_some_and(|labels| selects(selector, labels))
            }
            Some(selector) => selects(selector, known.unwrap_or(&TextMap::default())),
        };
        let listed = term.namespaces.iter().any(|own| **own == *namespace);
        (in_namespace || listed)
            && term
                .label_selector
                .as_ref()
                .is_some_and(|own| selects(own, &other.labels))
    }

    /// Reasons that reject a node.
    pub(super) fn reasons(&self, node: &NodeRecord) -> BTreeSet<&'static str> {
        let affinity = self.affinity(node);
        let mut reasons: BTreeSet<&'static str> = affinity.into_iter().collect();
        if affinity != Some("PodAffinityMismatch") {
            reasons.extend(self.spread(node));
        }
        reasons
    }

    fn affinity(&self, node: &NodeRecord) -> Option<&'static str> {
        let (attracts, repels) = (
            &self.constraints.pod_affinity.required,
            &self.constraints.pod_anti_affinity.required,
        );
        let all_match = |other: &TaskRecord| attracts.iter().all(|term| self.holds(term, self.own, other));
        let (mut attracting, mut repelling, mut repelled) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (other, at) in &self.pods {
            if all_match(other) {
                attracting.extend(attracts.iter().filter_map(|term| pair(&term.topology_key, at)));
            }
            let matching = repels.iter().filter(|term| self.holds(term, self.own, other));
            repelling.extend(matching.filter_map(|term| pair(&term.topology_key, at)));
            let theirs = other.constraints.iter().flat_map(|own| &own.pod_anti_affinity.required);
            let theirs = theirs.filter(|term| self.holds(term, other, self.own));
            repelled.extend(theirs.filter_map(|term| pair(&term.topology_key, at)));
        }
        if !attracts.is_empty() {
            let pairs: Option<Vec<TopologyPair>> = attracts.iter().map(|term| pair(&term.topology_key, node)).collect();
            let first = attracting.is_empty() && all_match(self.own);
            if !pairs.is_some_and(|pairs| first || pairs.iter().all(|own| attracting.contains(own))) {
                return Some("PodAffinityMismatch");
            }
        }
        let mut own = repels.iter().filter_map(|term| pair(&term.topology_key, node));
        if own.any(|own| repelling.contains(&own)) {
            return Some("PodAntiAffinity");
        }
        let mut labels = node
            .labels
            .iter()
            .map(|(key, value)| (Arc::clone(key), value.to_string()));
        labels
            .any(|own| repelled.contains(&own))
            .then_some("ExistingPodAntiAffinity")
    }

    /// Selector of a constraint with the labels that it takes over.
    fn wanted(&self, constraint: &SpreadConstraint) -> Option<LabelSelector> {
        let mut wanted = constraint.label_selector.clone();
        if let Some(selector) = &mut wanted {
            for key in &constraint.match_label_keys {
                selector
                    .match_expressions
                    .extend(find_text(&self.own.labels, key).map(|value| SelectorRequirement {
                        key: Arc::clone(key),
                        operator: "In".into(),
                        values: vec![value.into()],
                    }));
            }
        }
        wanted
    }

    fn wants(&self, constraint: &SpreadConstraint, labels: &TextMap) -> bool {
        self.wanted(constraint).is_some_and(|own| selects(&own, labels))
    }

    /// True if a node is eligible for a constraint, by its policy about node affinity.
    pub(super) fn honors(&self, constraint: &SpreadConstraint, at: &NodeRecord) -> bool {
        let mut pairs = self.constraints.node_selector.iter();
        constraint.node_affinity_policy == SpreadPolicy::Ignore
            || pairs.all(|(key, value)| find_text(&at.labels, key) == Some(value))
    }

    /// Number of pods on a node that match a constraint.
    pub(super) fn counted_pods(&self, constraint: &SpreadConstraint, at: &NodeRecord) -> i64 {
        let is_empty = self.wanted(constraint).is_some_and(|own| own.is_empty());
        let counted = self.pods.iter().filter(|(other, on)| {
            let alive = other.status != TaskStatus::Releasing && other.namespace() == self.own.namespace();
            on.name == at.name && alive && !is_empty && self.wants(constraint, &other.labels)
        });
        i64::try_from(counted.count()).unwrap()
    }

    fn spread(&self, node: &NodeRecord) -> Option<&'static str> {
        let hard: Vec<&SpreadConstraint> = self
            .constraints
            .spread_constraints
            .iter()
            .filter(|own| own.is_hard)
            .collect();
        let value =
            |own: &SpreadConstraint, node: &NodeRecord| find_text(&node.labels, &own.topology_key).map(str::to_owned);
        for constraint in &hard {
            let Some(domain) = value(constraint, node) else {
                return Some("MissingTopologyLabel");
            };
            let mut counts: BTreeMap<String, i64> = BTreeMap::new();
            for at in &self.nodes {
                if !self.honors(constraint, at) || hard.iter().any(|own| value(own, at).is_none()) {
                    continue;
                }
                *counts.entry(value(constraint, at).unwrap()).or_default() += self.counted_pods(constraint, at);
            }
            let min_domains = constraint.min_domains.unwrap_or(1);
            let enough = i32::try_from(counts.len()).unwrap() >= min_domains;
            let least = counts.values().min().filter(|_| enough).copied().unwrap_or(0);
            let count = counts.get(&domain).copied().unwrap_or(0) + i64::from(self.wants(constraint, &self.own.labels));
            if count - least > i64::from(constraint.max_skew) {
                return Some("TopologySpread");
            }
        }
        None
    }
}
