//! Score by preferred terms of pod affinity and anti-affinity.

use std::sync::Arc;

use smallvec::SmallVec;

use super::affinity::{is_known, known_at_beginning};
use super::candidate_values::{CandidateValues, extremes};
use super::keyed_domains::KeyedDomains;
use super::{PodView, unknown_namespaces};
use crate::model::constraints::{PodConstraints, WeightedPodTerm};
use crate::model::{NodeChunk, NodeMask, NodeSlot, PodClass, Problem};
use crate::plugin::{ChunkScores, PeerHook, PeerKey, PeerScorer};

/// Largest score.
const MAX_SCORE: f64 = 100.0;

/// Prepared score of the preferred terms about other pods: points of the domains of each node, relative to the candidates.
/// Points come from pods that the class's terms match, and from pods whose terms match the class.
#[derive(Debug, Default)]
pub(in crate::plugins) struct AffinityScore {
    points: TopologyPoints,
    values: CandidateValues,
    /// Nodes whose pods give points, sorted; `None`: all.
    known: Option<Vec<NodeSlot>>,
    /// Points of each further pod of the class; empty unless the score follows placements.
    own_points: PodPoints,
    /// Least and largest points of the surveyed peers.
    extremes: Option<(i64, i64)>,
    /// Term of another pod that needs unknown labels of namespaces.
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

    /// True if some term may give a class points.
    fn count_for(self, view: &PodView<'_>) -> bool {
        let others_count = view.cluster_state.has_preferring_pods() || self.required_points != 0;
        has_preferences(view.constraints) || (others_count && !self.only_for_preferring)
    }
}

/// Points of the topology domains, by key.
type TopologyPoints = KeyedDomains<i64>;

/// Points of each pod of a class in its domain, by the position of the topology key.
type PodPoints = SmallVec<[(usize, i64); 4]>;

impl AffinityScore {
    /// Score for a class; `None`: no term gives any node points.
    pub(in crate::plugins) fn new(view: &PodView<'_>, existing: ExistingPodTerms) -> Option<Self> {
        if !existing.count_for(view) {
            return None;
        }
        let mut score = Self::without_pods(view);
        for (class, counts) in view.classes() {
            let of_each = score.points_of_each(view, class, existing.required_points);
            if of_each.is_empty() {
                continue;
            }
            let counted = counts
                .iter()
                .filter(|(slot, _)| is_known(score.known.as_deref(), *slot));
            for (slot, count) in counted {
                score.points.add(&of_each, *slot, i64::from(*count));
            }
        }
        (score.points.len() > 0 || score.unknown.is_some()).then_some(score)
    }

    /// Score without points.
    fn without_pods(view: &PodView<'_>) -> Self {
        // Volcano lists the nodes of pods with terms when it opens a session, and only then if the class has no terms.
        let known = if has_preferences(view.constraints) {
            None
        } else {
            known_at_beginning(view, |own| {
                !(own.pod_affinity.is_empty() && own.pod_anti_affinity.is_empty())
            })
        };
        Self {
            known,
            ..Self::default()
        }
    }

    /// Score that follows placements of the class; `None`: it stays without points. `before` is the present score.
    pub(in crate::plugins) fn following(
        before: Option<Self>,
        view: &PodView<'_>,
        existing: ExistingPodTerms,
    ) -> Option<Self> {
        if !existing.count_for(view) {
            return None;
        }
        let mut score = before.unwrap_or_else(|| Self::without_pods(view));
        let own = PodClass {
            pod: view.pod.clone(),
            constraints: Some(Arc::new(view.constraints.clone())),
            is_releasing: false,
        };
        score.own_points = score.points_of_each(view, &own, existing.required_points);
        score.points.split(view.cluster_state.slots());
        (score.points.len() > 0).then_some(score)
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

    /// Records that it is unknown whether a term of another pod matches the class.
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
            self.values.add(slot, self.points.of_node(slot));
        }
    }

    /// Notes that a candidate takes no more tasks. True: scores of others change by that.
    pub(in crate::plugins) fn leave(&self, slot: NodeSlot) -> bool {
        self.values.leave(slot)
    }

    /// Fills in the score of each candidate of a chunk.
    pub(in crate::plugins) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let extremes = self.values.extremes();
        self.values.score(chunk, scores, |points| relative(points, extremes));
    }
}

/// Score of points among candidates with these extremes.
fn relative(points: i64, (least, most): (i64, i64)) -> i64 {
    let range = most.wrapping_sub(least);
    if range > 0 {
        truncate(MAX_SCORE * (points.wrapping_sub(least) as f64 / range as f64))
    } else {
        0
    }
}

impl AffinityScore {
    /// Points of nodes with these numbers.
    fn points_of(&self, key: &[i64]) -> i64 {
        self.points.values_of(key).flatten().fold(0, i64::wrapping_add)
    }
}

impl PeerHook for AffinityScore {
    fn append_key(&self, slot: NodeSlot, key: &mut PeerKey) {
        self.points.append_key(slot, key);
    }

    fn place(&mut self, slot: NodeSlot, changed: &mut Vec<NodeSlot>) {
        if !is_known(self.known.as_deref(), slot) {
            return;
        }
        self.points.add(&self.own_points, slot, 1);
        for (key, _) in &self.own_points {
            self.points.append_changed(*key, slot, changed);
        }
    }
}

impl PeerScorer for AffinityScore {
    fn survey(&mut self, peers: &mut dyn Iterator<Item = (&[i64], usize)>) -> Result<(), Problem> {
        let points = peers.map(|(key, _)| self.points_of(key));
        self.extremes = extremes(points);
        Ok(())
    }

    fn score(&self, key: &[i64]) -> i64 {
        relative(self.points_of(key), self.extremes.unwrap_or_default())
    }
}

/// True if a pod has preferred terms about other pods.
fn has_preferences(constraints: &PodConstraints) -> bool {
    !(constraints.pod_affinity.preferred.is_empty() && constraints.pod_anti_affinity.preferred.is_empty())
}

/// Preferred terms with their weights. Weights of anti-affinity are negative.
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
    /// Adds the points of some pods on a node.
    fn add(&mut self, of_each: &[(usize, i64)], slot: NodeSlot, count: i64) {
        for (key, points) in of_each {
            self.change(*key, slot, |own| *own = own.wrapping_add(points.wrapping_mul(count)));
        }
    }

    /// Points of a node: the sum of the points of its domains.
    fn of_node(&self, slot: NodeSlot) -> i64 {
        self.iter().filter_map(|own| own.at(slot)).fold(0, i64::wrapping_add)
    }
}
