//! Scorer of one task class.

use smallvec::SmallVec;

use super::arguments::PartWeights;
use super::image_locality::image_values;
use super::preferences::RelativePreference;
use super::resources::{BalancedDemand, NonzeroDemand};
use crate::model::{CHUNK_SIZE, ClusterState, IntegerColumn, NodeChunk, NodeMask, NodeSlot, Problem, TaskClass};
use crate::plugin::{ChunkScores, MAX_PARTS, NodeScorer, PluginContext};
use crate::plugins::inter_pod::{AffinityScore, PodView, SpreadScore};
use crate::plugins::record_values::RecordValues;
use crate::policy::Compatibility;

/// Part of the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScorePartKind {
    ImageLocality,
    LeastRequested,
    MostRequested,
    BalancedResource,
    NodeAffinity,
    TaintToleration,
    PodAffinity,
    TopologySpread,
}

impl ScorePartKind {
    fn name(self) -> &'static str {
        match self {
            Self::ImageLocality => "imagelocality",
            Self::LeastRequested => "leastrequested",
            Self::MostRequested => "mostrequested",
            Self::BalancedResource => "balancedresource",
            Self::NodeAffinity => "nodeaffinity",
            Self::TaintToleration => "tainttoleration",
            Self::PodAffinity => "podaffinity",
            Self::TopologySpread => "podtopologyspread",
        }
    }
}

/// Parts that are switched on, with their weights, in the order of the sum.
type SwitchedParts = SmallVec<[(ScorePartKind, i64); MAX_PARTS]>;

/// Fills one column with the scores of a chunk.
type ColumnFiller<'a> = Box<dyn Fn(&NodeChunk, &mut ChunkScores) + 'a>;

/// Prepared score.
pub(super) struct PodScorer<'a> {
    state: &'a ClusterState,
    parts: SwitchedParts,
    names: SmallVec<[&'static str; MAX_PARTS]>,
    demand: NonzeroDemand,
    balanced: Option<BalancedDemand>,
    images: Option<RecordValues<'a, ColumnFiller<'a>>>,
    affinity: Option<RelativePreference<'a>>,
    taints: Option<RelativePreference<'a>>,
    pod_affinity: Option<AffinityScore>,
    spread: Option<SpreadScore>,
}

impl<'a> PodScorer<'a> {
    /// Scorer of a class.
    ///
    /// # Errors
    /// A preferred term of the class is invalid.
    pub(super) fn new(
        weights: &PartWeights,
        compatibility: Compatibility,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let (state, constraints) = (context.cluster_state, class.constraints());
        let view = class.pod.as_ref().map(|pod| PodView {
            cluster_state: state,
            pod,
            constraints,
            compatibility,
            // Like their amounts, pods that are being released count until they are gone.
            after_release: false,
        });
        let pod_affinity = view.as_ref().filter(|_| weights.pod_affinity != 0);
        let pod_affinity = pod_affinity.and_then(AffinityScore::new);
        let spread = view.as_ref().filter(|_| weights.spread != 0);
        let spread = spread.and_then(SpreadScore::new);
        // Most classes have no terms about other pods, which then are no parts.
        let only_if = |weight, exists| if exists { weight } else { 0 };
        let parts: SwitchedParts = [
            (ScorePartKind::ImageLocality, weights.images),
            (ScorePartKind::LeastRequested, weights.least),
            (ScorePartKind::MostRequested, weights.most),
            (ScorePartKind::BalancedResource, weights.balanced),
            (ScorePartKind::NodeAffinity, weights.node_affinity),
            (ScorePartKind::TaintToleration, weights.taints),
            (
                ScorePartKind::PodAffinity,
                only_if(weights.pod_affinity, pod_affinity.is_some()),
            ),
            (ScorePartKind::TopologySpread, only_if(weights.spread, spread.is_some())),
        ]
        .into_iter()
        .filter(|(_, weight)| *weight != 0)
        .collect();
        let affinity = if weights.node_affinity == 0 {
            None
        } else {
            RelativePreference::node_affinity(state, constraints)?
        };
        Ok(Self {
            state,
            names: parts.iter().map(|(kind, _)| kind.name()).collect(),
            parts,
            demand: NonzeroDemand::of(class, compatibility),
            balanced: BalancedDemand::of(state, class).filter(|_| weights.balanced != 0),
            images: (weights.images != 0)
                .then(|| image_values(state, constraints))
                .flatten(),
            affinity,
            taints: (weights.taints != 0).then(|| RelativePreference::taints(state, constraints)),
            pod_affinity,
            spread,
        })
    }

    fn has(&self, kinds: [ScorePartKind; 2]) -> bool {
        self.parts.iter().any(|(own, _)| kinds.contains(own))
    }

    fn preferences(&self) -> impl Iterator<Item = &RelativePreference<'a>> {
        self.affinity.iter().chain(&self.taints)
    }
}

impl NodeScorer for PodScorer<'_> {
    fn parts(&self) -> &[&'static str] {
        &self.names
    }

    fn node_parts(&self) -> usize {
        usize::from(matches!(self.parts.first(), Some((ScorePartKind::ImageLocality, _))))
    }

    fn needs_survey(&self) -> bool {
        self.preferences().next().is_some() || self.pod_affinity.is_some() || self.spread.is_some()
    }

    fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) {
        for preference in self.affinity.iter_mut().chain(&mut self.taints) {
            preference.survey(chunk, candidates);
        }
        if let Some(score) = &mut self.pod_affinity {
            score.survey(chunk, candidates);
        }
        if let Some(score) = &mut self.spread {
            score.survey(chunk, candidates);
        }
    }

    fn finish_survey(&mut self) -> Result<(), Problem> {
        if let Some(score) = &mut self.spread {
            score.finish_survey();
        }
        self.preferences().try_for_each(RelativePreference::finish_survey)
    }

    fn leave(&self, slot: NodeSlot) -> bool {
        // Each part counts the node.
        let preferences = self.preferences().filter(|preference| preference.leave(slot)).count();
        let affinity = self.pod_affinity.as_ref().is_some_and(|score| score.leave(slot));
        let spread = self.spread.as_ref().is_some_and(|score| score.leave(slot));
        preferences > 0 || affinity || spread
    }

    fn warnings(&self) -> Vec<Problem> {
        let affinity = self.pod_affinity.as_ref();
        affinity.and_then(AffinityScore::warning).into_iter().cloned().collect()
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let [mut least, mut most] = [[0; CHUNK_SIZE]; 2];
        if self.has([ScorePartKind::LeastRequested, ScorePartKind::MostRequested]) {
            self.demand.score(self.state, chunk, &mut least, &mut most);
        }
        for (&(kind, weight), scores) in self.parts.iter().zip(parts) {
            if kind == ScorePartKind::ImageLocality {
                match &self.images {
                    Some(images) => images.fill(chunk, scores),
                    None => scores.fill(0.0),
                }
                for score in scores.iter_mut() {
                    *score *= weight as f64;
                }
                continue;
            }
            let mut own = [0; CHUNK_SIZE];
            match kind {
                ScorePartKind::LeastRequested => own = least,
                ScorePartKind::MostRequested => own = most,
                ScorePartKind::BalancedResource => {
                    if let Some(demand) = &self.balanced {
                        demand.score(self.state, chunk, &mut own);
                    }
                }
                ScorePartKind::NodeAffinity => {
                    if let Some(preference) = &self.affinity {
                        preference.score(chunk, &mut own);
                    }
                }
                ScorePartKind::TaintToleration => {
                    if let Some(preference) = &self.taints {
                        preference.score(chunk, &mut own);
                    }
                }
                ScorePartKind::PodAffinity => {
                    if let Some(score) = &self.pod_affinity {
                        score.score(chunk, &mut own);
                    }
                }
                ScorePartKind::TopologySpread => {
                    if let Some(score) = &self.spread {
                        score.score(chunk, &mut own);
                    }
                }
                ScorePartKind::ImageLocality => {}
            }
            write_products(&own, weight, scores);
        }
    }
}

/// Writes scores times a weight. The product wraps at 64 bits, as in the reference.
fn write_products(own: &IntegerColumn, weight: i64, scores: &mut ChunkScores) {
    for (score, own) in scores.iter_mut().zip(own) {
        *score = own.wrapping_mul(weight) as f64;
    }
}
