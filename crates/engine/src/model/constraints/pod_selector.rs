//! Selectors of pods by label, terms of pod affinity, and constraints on the spread of pods.

use std::sync::Arc;

use super::node_selector::SelectorRequirement;
use super::validity::{is_label_value, is_qualified_name};
use super::{each_pair, text_weight};
use crate::held_bytes::held_bytes;
use crate::model::namespace::NamespaceTable;
use crate::model::pod_identity::PodIdentity;
use crate::model::text_map::{TextMap, find_text};

/// Selector of objects by label: every pair and every requirement has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// Labels with exactly these values.
    pub match_labels: TextMap,
    /// Requirements; operators are `In`, `NotIn`, `Exists` and `DoesNotExist`.
    pub match_expressions: Vec<SelectorRequirement>,
}

held_bytes! { LabelSelector { match_labels, match_expressions } }

impl LabelSelector {
    /// True if Kubernetes accepts the selector: every pair and every requirement is valid. `Gt` and `Lt` are operators of
    /// nodes only.
    pub fn is_valid(&self) -> bool {
        let mut pairs = self.match_labels.iter();
        let mut requirements = self.match_expressions.iter();
        pairs.all(|(key, value)| is_qualified_name(key) && is_label_value(value))
            && requirements.all(|own| own.is_valid() && !matches!(&*own.operator, "Gt" | "Lt"))
    }

    /// True if the selector has no requirement; it matches everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// True if labels meet all requirements.
    pub fn matches(&self, labels: &TextMap) -> bool {
        let mut pairs = self.match_labels.iter();
        let mut requirements = self.match_expressions.iter();
        pairs.all(|(key, value)| find_text(labels, key) == Some(value))
            && requirements.all(|own| own.is_met_by(find_text(labels, &own.key)))
    }

    /// Bytes of the texts with their places in lists.
    pub fn text_bytes(&self) -> usize {
        let mut bytes = 0;
        self.clone().each_text(&mut |text| bytes += text_weight(text));
        bytes
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        each_pair(&mut self.match_labels, visit);
        self.match_expressions.iter_mut().for_each(|own| own.each_text(visit));
    }
}

/// Set of other pods, and the domain of nodes in which they are matched.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinityTerm {
    /// Selector of pods; `None`: it matches no pod.
    pub label_selector: Option<LabelSelector>,
    /// Namespaces of the other pods. Empty, without a selector of namespaces: the pod's own namespace.
    pub namespaces: Vec<Arc<str>>,
    /// Selector of further namespaces by label. `None`: no further namespaces.
    pub namespace_selector: Option<LabelSelector>,
    /// Label of nodes whose value names the domain.
    pub topology_key: Arc<str>,
}

impl PodAffinityTerm {
    /// True if the term of a pod in namespace `owner` selects this pod; `None`: it depends on the labels of the pod's
    /// namespace, and these namespaces do not have it.
    pub fn matches(&self, owner: &str, pod: &PodIdentity, namespaces: &NamespaceTable) -> Option<bool> {
        self.matches_namespace_by(owner, pod, |selector| {
            let stored = namespaces.get(&pod.namespace)?;
            Some(selector.matches(&stored.record.labels))
        })
    }

    /// True if the term of a pod in namespace `owner` selects this pod, or would do so if the labels of its namespace
    /// matched.
    pub fn may_match(&self, owner: &str, pod: &PodIdentity) -> bool {
        self.matches_namespace_by(owner, pod, |_| Some(true)) == Some(true)
    }

    /// True if the term of a pod in namespace `owner` selects this pod, whose namespace has no labels.
    pub fn matches_without_labels(&self, owner: &str, pod: &PodIdentity) -> bool {
        self.matches_namespace_by(owner, pod, |selector| Some(selector.matches(&TextMap::default()))) == Some(true)
    }

    fn matches_namespace_by(
        &self,
        owner: &str,
        pod: &PodIdentity,
        selects_namespace: impl Fn(&LabelSelector) -> Option<bool>,
    ) -> Option<bool> {
        let selected = self.label_selector.as_ref();
        if !selected.is_some_and(|selector| selector.matches(&pod.labels)) {
            return Some(false);
        }
        if self.namespaces.contains(&pod.namespace) {
            return Some(true);
        }
        match &self.namespace_selector {
            None => Some(self.namespaces.is_empty() && *owner == *pod.namespace),
            Some(selector) if selector.is_empty() => Some(true),
            Some(selector) => selects_namespace(selector),
        }
    }

    /// True if the term needs the labels of namespaces.
    pub fn needs_namespaces(&self) -> bool {
        let selector = self.namespace_selector.as_ref();
        selector.is_some_and(|selector| !selector.is_empty())
    }
}

/// Preferred term about other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedPodTerm {
    /// Points of each pod that matches.
    pub weight: i32,
    /// Pods and domain that the weight applies to.
    pub term: PodAffinityTerm,
}

/// Terms of a pod about other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerms {
    /// Required terms. All terms must hold.
    pub required: Vec<PodAffinityTerm>,
    /// Preferred terms. Each matching pod adds the weight of its term.
    pub preferred: Vec<WeightedPodTerm>,
}

impl PodTerms {
    /// True if the affinity has no terms.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        let preferred = self.preferred.iter_mut().map(|preferred| &mut preferred.term);
        for term in self.required.iter_mut().chain(preferred) {
            let selectors = [&mut term.label_selector, &mut term.namespace_selector];
            for selector in selectors.into_iter().flatten() {
                selector.each_text(visit);
            }
            term.namespaces.iter_mut().for_each(&mut *visit);
            visit(&mut term.topology_key);
        }
    }
}

/// Treatment of nodes that a pod cannot use, in spread constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpreadPolicy {
    /// Such nodes are left out.
    Honor,
    /// Such nodes are included.
    Ignore,
}

/// Limit on how unevenly pods are spread over domains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// Largest difference from the domain with the fewest matching pods.
    pub max_skew: i32,
    /// Label of nodes whose value names the domain.
    pub topology_key: Arc<str>,
    /// True: nodes that break the limit are rejected (`DoNotSchedule`); false: they score less (`ScheduleAnyway`).
    pub is_hard: bool,
    /// Selector of pods. `None` or empty: no pods.
    pub label_selector: Option<LabelSelector>,
    /// With fewer domains the smallest number of pods is 0; `None`: 1.
    pub min_domains: Option<i32>,
    /// Nodes that the pod's node selector and required node affinity exclude.
    pub node_affinity_policy: SpreadPolicy,
    /// Nodes with taints that the pod does not tolerate.
    pub node_taints_policy: SpreadPolicy,
    /// Labels of the pod whose values are added to the selector.
    pub match_label_keys: Vec<Arc<str>>,
}

impl SpreadConstraint {
    /// True if the constraint of a pod with labels `own` selects a pod with these labels.
    pub fn selects(&self, own: &TextMap, labels: &TextMap) -> bool {
        let selector = self.label_selector.as_ref();
        let mut keys = self.match_label_keys.iter();
        selector.is_some_and(|selector| selector.matches(labels))
            && keys.all(|key| {
                let value = find_text(own, key);
                value.is_none() || find_text(labels, key) == value
            })
    }

    /// True if the constraint of a pod with labels `own` matches no pods, although its selector is empty or matches
    /// every pod.
    pub fn counts_nothing(&self, own: &TextMap) -> bool {
        let selector = self.label_selector.as_ref();
        let mut keys = self.match_label_keys.iter();
        selector.is_none_or(LabelSelector::is_empty) && keys.all(|key| find_text(own, key).is_none())
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        visit(&mut self.topology_key);
        if let Some(selector) = &mut self.label_selector {
            selector.each_text(visit);
        }
        self.match_label_keys.iter_mut().for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_selector_matches_everything() {
        let labels: TextMap = [("app".into(), "web".into())].into();
        let selector = |pairs: &[(&str, &str)]| LabelSelector {
            match_labels: pairs
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
            match_expressions: Vec::new(),
        };
        assert!(selector(&[]).matches(&labels) && selector(&[("app", "web")]).matches(&labels));
        assert!(!selector(&[("app", "db")]).matches(&labels) && !selector(&[("tier", "web")]).matches(&labels));
    }
}
