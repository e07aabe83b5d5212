//! Score by preferred terms of pod affinity and anti-affinity.

use std::sync::Arc;

use smallvec::SmallVec;

use super::affinity::known_at_beginning;
use super::candidate_values::CandidateValues;
use super::{PodView, unknown_namespaces};
use crate::model::constraints::{PodConstraints, WeightedPodTerm};
use crate::model::{ClusterState, NodeChunk, NodeMask, NodeSlot, PodClass, Problem, TopologyDomains};
use crate::plugin::ChunkScores;

/// Largest score.
const MAX_SCORE: f64 = 100.0;

/// Prepared score of the preferred terms about other pods: points of the domains of each node, relative to the candidates.
/// Points come from pods that the class's terms match, and from pods whose terms match the class.
#[derive(Debug)]
pub(in crate::plugins) struct AffinityScore {
    points: TopologyPoints,
    values: CandidateValues,
    /// Term of another pod that needs labels of namespaces, which nobody knows.
    unknown: Option<Problem>,
}

/// Terms of pods on nodes that give points, beside the preferred terms of the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) struct ExistingPodTerms {
    /// Points of a required term of affinity.
    pub(in crate::plugins) required_points: i32,
    /// True if no term gives points to a class without preferred terms of its own.
    pub(in crate::plugins) only_for_preferring: bool,
}

impl ExistingPodTerms {
    /// Preferred terms, for all classes.
    pub(in crate::plugins) const PREFERRED: Self = Self {
        required_points: 0,
        only_for_preferring: false,
    };
}

/// Points of the topology domains, by key.
#[derive(Debug, Default)]
struct TopologyPoints(Vec<DomainPoints>);

/// Points of the domains of one topology key.
#[derive(Debug)]
struct DomainPoints {
    key: Arc<str>,
    domains: Arc<TopologyDomains>,
    points: Vec<i64>,
}

/// Points of each pod of a class in its domain, by the position of the topology key.
type PodPoints = SmallVec<[(usize, i64); 4]>;

impl AffinityScore {
    /// Score for a class; `None`: no term gives any node points.
    pub(in crate::plugins) fn new(view: &PodView<'_>, existing: ExistingPodTerms) -> Option<Self> {
        let prefers = has_preferences(view.constraints);
        let others_count = view.cluster_state.has_preferring_pods() || existing.required_points != 0;
        if !prefers && (existing.only_for_preferring || !others_count) {
            return None;
        }
        // Volcano lists the nodes of pods with terms when it opens a session, and only then if the class has no terms.
        let known = if prefers {
            None
        } else {
            known_at_beginning(view, |own| {
                !(own.pod_affinity.is_empty() && own.pod_anti_affinity.is_empty())
            })
        };
        let mut score = Self {
            points: TopologyPoints::default(),
            values: CandidateValues::default(),
            unknown: None,
        };
        for (class, counts) in view.classes() {
            let of_each = score.points_of_each(view, class, existing.required_points);
            if of_each.is_empty() {
                continue;
            }
            let is_known = |slot: NodeSlot| known.as_ref().is_none_or(|known| known.binary_search(&slot).is_ok());
            let counted = counts
                .iter()
                .filter(|(slot, _)| view.sees_node(*slot) && is_known(*slot));
            for (slot, count) in counted {
                score.points.add(&of_each, *slot, i64::from(*count));
            }
        }
        (!score.points.0.is_empty() || score.unknown.is_some()).then_some(score)
    }

    /// Points of each pod of another class.
    fn points_of_each(&mut self, view: &PodView<'_>, other: &PodClass, required_points: i32) -> PodPoints {
        let mut found = PodPoints::new();
        let theirs = other.constraints.as_deref();
        if required_points != 0 {
            self.add_required(view, other, required_points, &mut found);
        }
        for (constraints, is_own) in [(Some(view.constraints), true), (theirs, false)] {
            for (preferred, weight) in constraints.into_iter().flat_map(signed_terms) {
                let selects = if is_own {
                    view.selects(&preferred.term, &other.pod)
                } else {
                    view.is_selected_by(&preferred.term, &other.pod)
                };
                match selects {
                    Some(true) => {
                        let key = self.points.position(view.cluster_state, &preferred.term.topology_key);
                        found.push((key, i64::from(weight)));
                    }
                    Some(false) => {}
                    // A result names own terms that depend on labels of unknown namespaces as not evaluated.
                    None if is_own => {}
                    None => self.note_unknown(view, other),
                }
            }
        }
        found
    }

    /// Adds the points of the required terms of affinity of another class.
    fn add_required(&mut self, view: &PodView<'_>, other: &PodClass, points: i32, found: &mut PodPoints) {
        let theirs = other.constraints.iter();
        for term in theirs.flat_map(|own| &own.pod_affinity.required) {
            match view.is_selected_by(term, &other.pod) {
                Some(true) => {
                    let key = self.points.position(view.cluster_state, &term.topology_key);
                    found.push((key, i64::from(points)));
                }
                Some(false) => {}
                None => self.note_unknown(view, other),
            }
        }
    }

    /// Notes that nobody knows whether a term of another pod matches the class.
    fn note_unknown(&mut self, view: &PodView<'_>, other: &PodClass) {
        if self.unknown.is_none() {
            self.unknown = Some(unknown_namespaces(view, other, "preferred", "the score leaves it out"));
        }
    }

    /// Warning about a term of another pod that the score leaves out.
    pub(in crate::plugins) fn warning(&self) -> Option<&Problem> {
        self.unknown.as_ref()
    }

    /// Sees the candidates of a chunk.
    pub(in crate::plugins) fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) {
        for slot in candidates.iter().filter_map(|offset| chunk.slot(offset)) {
            self.values.add(slot, self.points.at(slot));
        }
    }

    /// Notes that a candidate takes no more tasks. True: scores of others change by that.
    pub(in crate::plugins) fn leave(&self, slot: NodeSlot) -> bool {
        self.values.leave(slot)
    }

    /// Fills in the score of each candidate of a chunk.
    pub(in crate::plugins) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let least = self.values.least();
        let range = self.values.most().wrapping_sub(least);
        self.values.score(chunk, scores, |points| {
            if range > 0 {
                truncate(MAX_SCORE * (points.wrapping_sub(least) as f64 / range as f64))
            } else {
                0
            }
        });
    }
}

/// True if a pod has preferred terms about other pods.
fn has_preferences(constraints: &PodConstraints) -> bool {
    !(constraints.pod_affinity.preferred.is_empty() && constraints.pod_anti_affinity.preferred.is_empty())
}

/// Preferred terms with their weights; those of anti-affinity are negative.
fn signed_terms(constraints: &PodConstraints) -> impl Iterator<Item = (&WeightedPodTerm, i32)> {
    let attracts = constraints.pod_affinity.preferred.iter();
    let repels = constraints.pod_anti_affinity.preferred.iter();
    let attracts = attracts.map(|own| (own, own.weight));
    attracts.chain(repels.map(|own| (own, own.weight.wrapping_neg())))
}

/// Integer part of a score.
#[expect(clippy::cast_possible_truncation, reason = "the reference cuts the fraction off")]
fn truncate(score: f64) -> i64 {
    score as i64
}

impl TopologyPoints {
    /// Position of a key, which is added if it is new.
    fn position(&mut self, cluster_state: &ClusterState, key: &Arc<str>) -> usize {
        if let Some(at) = self.0.iter().position(|own| own.key == *key) {
            return at;
        }
        let domains = cluster_state.topology_domains(key);
        self.0.push(DomainPoints {
            key: Arc::clone(key),
            points: vec![0; domains.count()],
            domains,
        });
        self.0.len() - 1
    }

    /// Adds the points of some pods on a node.
    fn add(&mut self, of_each: &[(usize, i64)], slot: NodeSlot, count: i64) {
        for (key, points) in of_each {
            let Some(own) = self.0.get_mut(*key) else { continue };
            if let Some(place) = own.domains.domain(slot).and_then(|domain| own.points.get_mut(domain)) {
                *place = place.wrapping_add(points.wrapping_mul(count));
            }
        }
    }

    /// Points of a node: those of its domains.
    fn at(&self, slot: NodeSlot) -> i64 {
        let of_key = |own: &DomainPoints| own.points.get(own.domains.domain(slot)?).copied();
        self.0.iter().filter_map(of_key).fold(0, i64::wrapping_add)
    }
}
