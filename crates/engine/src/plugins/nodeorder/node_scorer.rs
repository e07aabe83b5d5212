//! Scorer of one task class.

use std::cell::OnceCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::arguments::PartWeights;
use super::float_amounts::ComparedFloats;
use super::image_locality::ImageLocality;
use super::preferences::{EXTREME_NUMBERS, RelativePreference};
use super::resources::{BalancedDemand, COMPARED, ComparedCapacities, NonzeroDemand, allocatable, truncate};
use crate::model::constraints::PreferredTerm;
use crate::model::{CHUNK_SIZE, ClusterState, NodeChunk, NodeMask, NodeSlot, Problem, TaskClass};
use crate::plugin::{ChunkScores, HookNumbers, MAX_PARTS, NodeScorer, PeerScorer, PluginContext};
use crate::plugins::inter_pod::{AffinityScore, ExistingPodTerms, PodView, SpreadDefaults, SpreadScore};
use crate::policy::{Compatibility, ReleaseRules};

/// Part of the score, such as least requested resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) enum ScorePartKind {
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
    /// All parts, in the order of the sum.
    const ALL: [Self; 8] = [
        Self::ImageLocality,
        Self::LeastRequested,
        Self::MostRequested,
        Self::BalancedResource,
        Self::NodeAffinity,
        Self::TaintToleration,
        Self::PodAffinity,
        Self::TopologySpread,
    ];

    /// True if the part depends on other nodes or on the candidates.
    fn is_relative(self) -> bool {
        matches!(
            self,
            Self::NodeAffinity | Self::TaintToleration | Self::PodAffinity | Self::TopologySpread
        )
    }

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

/// Parts of a plugin, and how they are computed.
#[derive(Clone, Debug)]
pub(in crate::plugins) struct ScoreRules {
    /// Name of the plugin.
    pub(in crate::plugins) plugin: &'static str,
    pub(in crate::plugins) weights: PartWeights,
    /// Device that balanced allocation compares beside cpu and memory.
    pub(in crate::plugins) device: Option<Arc<str>>,
    /// Terms of pods on nodes that give points.
    pub(in crate::plugins) existing_pods: ExistingPodTerms,
    /// Spread constraints of pods that have none of their own.
    pub(in crate::plugins) spread_defaults: SpreadDefaults,
    /// Preferred terms of the node affinity that each pod has beside its own.
    pub(in crate::plugins) added_preferences: Vec<PreferredTerm>,
    pub(in crate::plugins) compatibility: Compatibility,
    /// Rules of image locality.
    pub(in crate::plugins) image_rules: ReleaseRules,
    /// True: selectors of namespaces are read as kube-scheduler 1.36 reads them.
    pub(in crate::plugins) opens_selectors: bool,
}

impl ScoreRules {
    /// Rules of the release that is followed.
    pub(super) fn release(&self) -> ReleaseRules {
        self.compatibility.release().rules()
    }

    /// True if a part is computed node by node, in floats: image locality, and in older releases what reads no other node.
    fn is_by_node(&self, kind: ScorePartKind) -> bool {
        match kind {
            ScorePartKind::ImageLocality => true,
            ScorePartKind::LeastRequested
            | ScorePartKind::MostRequested
            | ScorePartKind::BalancedResource
            | ScorePartKind::NodeAffinity => !self.release().scores_candidates_together,
            ScorePartKind::TaintToleration | ScorePartKind::PodAffinity | ScorePartKind::TopologySpread => false,
        }
    }

    /// Name of a part; empty: it is the whole plugin.
    fn part_name(&self, kind: ScorePartKind) -> &'static str {
        if self.plugin == super::NAME { kind.name() } else { "" }
    }
}

/// Parts that are switched on, with their weights, in the order of the sum.
type SwitchedParts = SmallVec<[(ScorePartKind, i64); MAX_PARTS]>;

/// Prepared score.
pub(in crate::plugins) struct PodScorer<'a> {
    rules: &'a ScoreRules,
    state: &'a ClusterState,
    /// Class with the pods that it sees; `None`: nothing about pods is evaluated.
    view: Option<PodView<'a>>,
    parts: SwitchedParts,
    names: SmallVec<[&'static str; MAX_PARTS]>,
    demand: NonzeroDemand,
    balanced: Option<BalancedDemand>,
    images: Option<ImageLocality<'a>>,
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
    pub(in crate::plugins) fn new(
        rules: &'a ScoreRules,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let (state, constraints) = (context.cluster_state, class.constraints());
        let (weights, compatibility) = (&rules.weights, rules.compatibility);
        let view = class.pod.as_ref().map(|pod| PodView {
            cluster_state: state,
            pod,
            constraints,
            spread_defaults: &rules.spread_defaults,
            compatibility,
            opens_selectors: rules.opens_selectors,
            // Like their amounts, pods that are being released count until they are gone.
            after_release: false,
        });
        let is_on = |kind| weights.of(kind) != 0;
        let pod_affinity = view.as_ref().filter(|_| is_on(ScorePartKind::PodAffinity));
        let pod_affinity = pod_affinity.and_then(|view| AffinityScore::new(view, rules.existing_pods));
        let spread = view.as_ref().filter(|_| is_on(ScorePartKind::TopologySpread));
        let spread = spread.and_then(SpreadScore::new);
        // Most classes have no terms about other pods, which then are no parts.
        let exists = |kind: &ScorePartKind| match kind {
            ScorePartKind::PodAffinity => pod_affinity.is_some(),
            ScorePartKind::TopologySpread => spread.is_some(),
            ScorePartKind::ImageLocality
            | ScorePartKind::LeastRequested
            | ScorePartKind::MostRequested
            | ScorePartKind::BalancedResource
            | ScorePartKind::NodeAffinity
            | ScorePartKind::TaintToleration => is_on(*kind),
        };
        let parts = ScorePartKind::ALL.into_iter().filter(exists);
        let parts: SwitchedParts = parts.map(|kind| (kind, weights.of(kind))).collect();
        let affinity = if is_on(ScorePartKind::NodeAffinity) {
            RelativePreference::node_affinity(rules, state, constraints)?
        } else {
            None
        };
        Ok(Self {
            rules,
            state,
            view,
            names: parts.iter().map(|(kind, _)| rules.part_name(*kind)).collect(),
            parts,
            demand: NonzeroDemand::of(class, rules),
            balanced: BalancedDemand::of(state, class, rules).filter(|_| is_on(ScorePartKind::BalancedResource)),
            images: is_on(ScorePartKind::ImageLocality)
                .then(|| ImageLocality::of(state, constraints, rules.image_rules))
                .flatten(),
            affinity,
            taints: is_on(ScorePartKind::TaintToleration)
                .then(|| RelativePreference::taints(rules.plugin, state, constraints)),
            pod_affinity,
            spread,
        })
    }

    fn has(&self, kind: ScorePartKind) -> bool {
        self.parts.iter().any(|(own, _)| *own == kind)
    }

    /// True if a part reads pods of other nodes.
    fn reads_pods(&self) -> bool {
        self.pod_affinity.is_some() || self.spread.is_some()
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
        let by_node = self.parts.iter().take_while(|(kind, _)| self.rules.is_by_node(*kind));
        by_node.count()
    }

    fn needs_survey(&self) -> bool {
        self.preferences().next().is_some() || self.pod_affinity.is_some() || self.spread.is_some()
    }

    fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) -> Option<HookNumbers> {
        let mut numbers = HookNumbers::new();
        for preference in self.affinity.iter_mut().chain(&mut self.taints) {
            numbers.extend(preference.survey(chunk, candidates));
        }
        if let Some(score) = &mut self.pod_affinity {
            score.survey(chunk, candidates);
        }
        if let Some(score) = &mut self.spread {
            score.survey(chunk, candidates);
        }
        (!self.reads_pods()).then_some(numbers)
    }

    fn survey_again(&mut self, numbers: &[u64]) {
        let preferences = self.affinity.iter_mut().chain(&mut self.taints);
        for (preference, numbers) in preferences.zip(numbers.chunks(EXTREME_NUMBERS)) {
            preference.survey_again(numbers);
        }
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        let extremes = self.preferences().map(RelativePreference::outside_input);
        let images = self.images.iter().flat_map(ImageLocality::spread_sizes);
        (!self.reads_pods()).then(|| extremes.chain(images).collect())
    }

    fn finish_survey(&mut self) -> Result<(), Problem> {
        if let Some(score) = &mut self.spread {
            score.finish_survey();
        }
        self.preferences().try_for_each(RelativePreference::finish_survey)
    }

    fn split_peers(&mut self) -> Vec<(i64, Box<dyn PeerScorer>)> {
        let weight = |kind| self.rules.weights.of(kind);
        let mut split: Vec<(i64, Box<dyn PeerScorer>)> = Vec::new();
        for (kind, preference) in [
            (ScorePartKind::NodeAffinity, self.affinity.take()),
            (ScorePartKind::TaintToleration, self.taints.take()),
        ] {
            if let Some(preference) = preference {
                split.push((weight(kind), Box::new(preference.into_peers(self.state))));
            }
        }
        let affinity = weight(ScorePartKind::PodAffinity);
        if let Some(view) = self.view.as_ref().filter(|_| affinity != 0)
            // Pods of the class may be the first to give points.
            && let Some(own) = AffinityScore::following(self.pod_affinity.take(), view, self.rules.existing_pods)
        {
            split.push((affinity, Box::new(own)));
        }
        if let Some(spread) = self.spread.take() {
            split.push((weight(ScorePartKind::TopologySpread), Box::new(spread)));
        }
        self.leave_out_relative();
        split
    }

    fn drop_peers(&mut self) -> usize {
        let dropped = [
            self.affinity.take().is_some(),
            self.taints.take().is_some(),
            self.pod_affinity.take().is_some(),
            self.spread.take().is_some(),
        ];
        self.leave_out_relative();
        dropped.into_iter().filter(|dropped| *dropped).count()
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
        let amounts = ComparedAmounts {
            chunk,
            floats: if self.compares_resources() {
                ComparedFloats::of(chunk)
            } else {
                None
            },
            capacities: OnceCell::new(),
        };
        let mut most = [0.0; CHUNK_SIZE];
        for (&(kind, weight), scores) in self.parts.iter().zip(parts) {
            match kind {
                ScorePartKind::LeastRequested => {
                    let most = self.has(ScorePartKind::MostRequested).then_some(&mut most);
                    self.compare_requested(&amounts, scores, most);
                }
                ScorePartKind::MostRequested if self.has(ScorePartKind::LeastRequested) => *scores = most,
                ScorePartKind::MostRequested => {
                    let mut least = [0.0; CHUNK_SIZE];
                    self.compare_requested(&amounts, &mut least, Some(scores));
                }
                ScorePartKind::BalancedResource => self.balance_resources(&amounts, scores),
                ScorePartKind::ImageLocality
                | ScorePartKind::NodeAffinity
                | ScorePartKind::TaintToleration
                | ScorePartKind::PodAffinity
                | ScorePartKind::TopologySpread => self.score_preference(kind, chunk, scores),
            }
            multiply(self.rules.is_by_node(kind), weight, scores);
        }
    }
}

/// Cpu and memory of the nodes of a chunk.
struct ComparedAmounts<'k> {
    chunk: &'k NodeChunk,
    /// Columns of floats, if they show all amounts.
    floats: Option<ComparedFloats<'k>>,
    /// Allocatable amounts as integers, from the first question about them.
    capacities: OnceCell<ComparedCapacities>,
}

impl ComparedAmounts<'_> {
    fn capacities(&self) -> &ComparedCapacities {
        self.capacities
            .get_or_init(|| COMPARED.map(|id| allocatable(self.chunk, id)))
    }
}

impl PodScorer<'_> {
    /// Fills in least and most requested; most only if it is wanted.
    fn compare_requested(
        &self,
        amounts: &ComparedAmounts<'_>,
        least: &mut ChunkScores,
        mut most: Option<&mut ChunkScores>,
    ) {
        let floats = amounts.floats.as_ref();
        let is_done =
            floats.is_some_and(|floats| self.demand.score_floats(self.state, floats, least, most.as_deref_mut()));
        if !is_done {
            self.demand
                .score(self.state, amounts.chunk, amounts.capacities(), least, most);
        }
    }

    /// Fills in the balance of resources.
    fn balance_resources(&self, amounts: &ComparedAmounts<'_>, scores: &mut ChunkScores) {
        let Some(demand) = &self.balanced else {
            return scores.fill(0.0);
        };
        let floats = amounts.floats.as_ref();
        if !floats.is_some_and(|floats| demand.score_floats(self.state, floats, scores)) {
            demand.score(self.state, amounts.chunk, amounts.capacities(), scores);
        }
    }

    /// Leaves out the parts that depend on other nodes or on the candidates.
    fn leave_out_relative(&mut self) {
        self.parts.retain(|(kind, _)| !kind.is_relative());
        self.names = self.parts.iter().map(|(kind, _)| self.rules.part_name(*kind)).collect();
    }

    /// True if some part compares cpu and memory.
    fn compares_resources(&self) -> bool {
        self.balanced.is_some() || self.has(ScorePartKind::LeastRequested) || self.has(ScorePartKind::MostRequested)
    }

    /// Fills in a part that does not compare resources.
    fn score_preference(&self, kind: ScorePartKind, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let known = match kind {
            ScorePartKind::ImageLocality => self.images.as_ref().map(|own| own.fill(chunk, scores)),
            ScorePartKind::NodeAffinity => self.affinity.as_ref().map(|own| own.score(chunk, scores)),
            ScorePartKind::TaintToleration => self.taints.as_ref().map(|own| own.score(chunk, scores)),
            ScorePartKind::PodAffinity => self.pod_affinity.as_ref().map(|own| own.score(chunk, scores)),
            ScorePartKind::TopologySpread => self.spread.as_ref().map(|own| own.score(chunk, scores)),
            ScorePartKind::LeastRequested | ScorePartKind::MostRequested | ScorePartKind::BalancedResource => None,
        };
        if known.is_none() {
            scores.fill(0.0);
        }
    }
}

/// Largest weight whose products with scores are exact floats.
const MAX_FLOAT_WEIGHT: u64 = 1 << 46;

/// Multiplies scores by a weight. As in the reference, the product wraps at 64 bits, except where it is computed node by node, in
/// floats.
fn multiply(is_by_node: bool, weight: i64, scores: &mut ChunkScores) {
    if is_by_node || weight.unsigned_abs() <= MAX_FLOAT_WEIGHT {
        let weight = weight as f64;
        // A sum with 0 is never -0.
        let scores = scores.iter_mut();
        scores.for_each(|score| *score = *score * weight + 0.0);
    } else {
        let scores = scores.iter_mut();
        scores.for_each(|score| *score = truncate(*score).wrapping_mul(weight) as f64);
    }
}
