//! Constraints of pods about other pods, as filters and scores: inter-pod affinity, anti-affinity and topology spread
//! (Kubernetes v1.36.1, `InterPodAffinity` and `PodTopologySpread`, as used by Volcano ed72c7c81).
//!
//! A selector is matched once per class of pods, and its pods are summed by topology domain.

mod affinity;
mod affinity_score;
mod candidate_values;
mod keyed_domains;
mod marks;
mod natural_logarithm;
mod spread;
mod spread_defaults;
mod spread_score;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use affinity::AffinityFilter;
pub(super) use affinity_score::{AffinityScore, ExistingPodTerms};
pub(super) use spread::SpreadFilter;
pub(super) use spread_defaults::{NO_SPREAD_DEFAULTS, SpreadDefaults, soft_constraint};
pub(super) use spread_score::SpreadScore;

use crate::model::constraints::{PodAffinityTerm, PodConstraints};
use crate::model::{ClusterState, ErrorCode, NodeSlot, PodClass, PodIdentity, Problem};
use crate::policy::Compatibility;

/// Task class that looks for a node, and the pods that it sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodView<'a> {
    /// Cluster state.
    pub(super) cluster_state: &'a ClusterState,
    /// Namespace and labels of the class.
    pub(super) pod: &'a PodIdentity,
    /// Constraints of the class.
    pub(super) constraints: &'a PodConstraints,
    /// Spread constraints of pods that have none of their own.
    pub(super) spread_defaults: &'a SpreadDefaults,
    /// Compatibility of the policy.
    pub(super) compatibility: Compatibility,
    /// True: a selector of namespaces of the class that a namespace without labels matches selects all namespaces. So does
    /// kube-scheduler 1.36: it lists the namespaces that match, and then turns the selector off in a copy of the term.
    pub(super) opens_selectors: bool,
    /// True: pods that are being released are gone.
    pub(super) after_release: bool,
}

impl<'a> PodView<'a> {
    /// Classes of pods with the numbers on nodes.
    fn classes(&self) -> impl Iterator<Item = (&'a PodClass, &'a [(NodeSlot, u32)])> {
        let after_release = self.after_release;
        let classes = self.cluster_state.pods().classes();
        classes.filter(move |(class, _)| !(after_release && class.is_releasing))
    }

    /// True if a term of the class selects another pod. `None`: this depends on labels that the records do not have. In
    /// that case the reference does not find a namespace and selects no pod.
    fn selects(&self, term: &PodAffinityTerm, other: &PodIdentity) -> Option<bool> {
        if self.opens_selectors && term.matches_without_labels(&self.pod.namespace, other) {
            return Some(true);
        }
        let selects = term.matches(&self.pod.namespace, other, self.cluster_state.namespaces());
        match self.compatibility {
            Compatibility::Upstream(_) => Some(selects.unwrap_or(false)),
            Compatibility::Corrected => selects,
        }
    }

    /// True if a term of another pod selects the class; `None`: it depends on labels that the records do not have. The
    /// reference takes a namespace that it does not find for one without labels.
    fn is_selected_by(&self, term: &PodAffinityTerm, other: &PodIdentity) -> Option<bool> {
        let selects = term.matches(&other.namespace, self.pod, self.cluster_state.namespaces());
        match self.compatibility {
            Compatibility::Upstream(_) => {
                Some(selects.unwrap_or_else(|| term.matches_without_labels(&other.namespace, self.pod)))
            }
            Compatibility::Corrected => selects,
        }
    }

    /// True if the class's own term is evaluated; a result names the others as not evaluated.
    fn is_evaluated(&self, term: &PodAffinityTerm) -> bool {
        self.compatibility.is_upstream() || !self.cluster_state.leaves_open(term, self.pod)
    }
}

/// Problem of a term of another pod that selects namespaces by label: the labels of the class's namespace are unknown.
fn unknown_namespaces(view: &PodView<'_>, other: &PodClass, kind: &str, effect: &str) -> Problem {
    let of_class = |constraints: &Arc<PodConstraints>| {
        let terms = other.constraints.as_ref();
        terms.is_some_and(|terms| Arc::ptr_eq(terms, constraints) || terms == constraints)
    };
    let mut tasks = view.cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
    let owner = tasks.find(|task| {
        let same_place = task.namespace() == &*other.pod.namespace && !task.node.is_empty();
        same_place && task.labels == other.pod.labels && task.constraints.as_ref().is_some_and(of_class)
    });
    let owner = owner.map_or("another task of the query", |task| &task.name);
    let message = format!(
        "a {kind} term of pod `{owner}` about other pods selects namespaces by their labels, and no record of namespace \
         `{}` tells them; so {effect}: send the namespace",
        view.pod.namespace
    );
    Problem::new(
        ErrorCode::NamespaceLabelsUnknown,
        "constraints.pod_anti_affinity",
        message,
    )
}
