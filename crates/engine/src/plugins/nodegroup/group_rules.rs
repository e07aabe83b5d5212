//! Rules about the group of a node: filter and score of one task class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::record_values::RecordValues;
use super::group_limits::PassedLimit;
use super::state::NodeGroupState;
use super::{GROUP_LABEL, NAME};
use crate::model::{ClusterState, NodeChunk, NodeMask, QueueAffinity, ResourceTotals, TaskClass};
use crate::plugin::{
    ChunkRejections, ChunkScores, Measurement, NodeFilter, NodeScorer, PluginContext, Reason, Resolution,
};
use crate::policy::Compatibility;

/// Code and message of each reason, by its number.
const REASONS: [(&str, &str); 5] = [
    ("NodeGroupLabelMissing", "node group label not found"),
    ("NodeGroupAffinityMissing", "node group affinity not specified"),
    ("NodeGroupMismatch", "node does not satisfy the node group affinity"),
    ("NodeGroupLimitsInvalid", "node group resource limit annotation invalid"),
    ("NodeGroupLimitExceeded", "node group resource limit exceeded"),
];

const LABEL_MISSING: u16 = 0;
const AFFINITY_MISSING: u16 = 1;
const MISMATCH: u16 = 2;
const LIMITS_INVALID: u16 = 3;
const LIMIT_EXCEEDED: u16 = 4;

/// Score of a group in the required list.
const REQUIRED_SCORE: f64 = 100.0;
/// Score of a group in the preferred list, or of the first group if the order matters.
const PREFERRED_SCORE: f64 = 50.0;
/// Score of a group that the queue would rather avoid.
const AVOIDED_SCORE: f64 = -1.0;

/// True if a queue with this affinity may use nodes of a group.
pub(super) fn permits(affinity: &QueueAffinity, group: &str, compatibility: Compatibility) -> bool {
    let (uses, avoids) = (&affinity.affinity, &affinity.anti_affinity);
    let listed = uses.requires(group) || uses.prefers(group);
    let (banned, spared) = (avoids.requires(group), avoids.prefers(group));
    match compatibility {
        Compatibility::Upstream(_) => (listed && !banned) || spared,
        // A required anti-affinity holds always, and by itself it bans its own groups only.
        Compatibility::Corrected => (listed || spared || uses.is_empty()) && !banned,
    }
}

/// Scores of the groups that an affinity names; any other group scores 0.
pub(super) fn group_scores(
    affinity: &QueueAffinity,
    by_order: bool,
    compatibility: Compatibility,
) -> BTreeMap<Arc<str>, f64> {
    let mut scores: BTreeMap<Arc<str>, f64> = BTreeMap::new();
    for group in &affinity.affinity.required {
        scores.insert(Arc::clone(group), REQUIRED_SCORE);
    }
    for (group, place) in preferred_places(&affinity.affinity.preferred, compatibility) {
        let score = match place {
            (place, count) if by_order => PREFERRED_SCORE * (count - place) / count,
            _ => PREFERRED_SCORE,
        };
        *scores.entry(group).or_insert(0.0) += score;
    }
    for group in &affinity.anti_affinity.preferred {
        scores.insert(Arc::clone(group), AVOIDED_SCORE);
    }
    scores
}

/// Position of each group in a list, with the number of distinct groups. A repeated group has its last position under
/// `upstream`, and its first position among the distinct groups under `corrected`.
fn preferred_places(list: &[Arc<str>], compatibility: Compatibility) -> BTreeMap<Arc<str>, (f64, f64)> {
    let mut places: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for (group, place) in list.iter().zip(0_u32..) {
        if compatibility.is_upstream() {
            places.insert(Arc::clone(group), place);
        } else if !places.contains_key(group) {
            let place = u32::try_from(places.len()).unwrap_or(u32::MAX);
            places.insert(Arc::clone(group), place);
        }
    }
    let count = f64::from(u32::try_from(places.len()).unwrap_or(u32::MAX));
    let places = places.into_iter();
    places
        .map(|(group, place)| (group, (f64::from(place), count)))
        .collect()
}

/// Verdict of a queue's limits on one more task.
#[derive(Debug)]
pub(super) enum GroupLimitVerdict {
    /// The limits cannot be read, for this reason: no node takes the task.
    Unreadable(Arc<str>),
    /// Groups with a limit that the task would pass.
    Passed(BTreeMap<Arc<str>, PassedLimit>),
}

impl GroupLimitVerdict {
    /// Verdict on a class by what its queue holds now; `None`: its queue has no limits.
    pub(super) fn of(context: PluginContext<'_>, class: &TaskClass) -> Option<Self> {
        let charge = class.charge.as_ref()?;
        let queue = context
            .plugin_states
            .get::<NodeGroupState>(NAME)?
            .queue(&charge.queue)?;
        if let Some(error) = &queue.unreadable {
            return Some(Self::Unreadable(Arc::clone(error)));
        }
        let mut request = ResourceTotals::default();
        request.add(&charge.requests);
        let passed = queue.limits.groups().filter_map(|group| {
            let held = queue.held(group)?;
            let passed = queue
                .limits
                .passed(group, held, &request, context.cluster_state.resources())?;
            Some((Arc::clone(group), passed))
        });
        Some(Self::Passed(passed.collect()))
    }

    /// Limit that the task would pass in a group; `None`: none.
    fn passed(&self, group: &str) -> Option<&PassedLimit> {
        match self {
            Self::Unreadable(_) => None,
            Self::Passed(groups) => groups.get(group),
        }
    }
}

/// Filter of one task class.
pub(super) struct GroupFilter<'a> {
    /// Limits of the queue; `None`: it has none.
    pub(super) limits: Option<GroupLimitVerdict>,
    /// Affinity of the queue; `None`: it lists no group.
    pub(super) affinity: Option<&'a QueueAffinity>,
    pub(super) strict: bool,
    pub(super) compatibility: Compatibility,
}

impl NodeFilter for GroupFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if matches!(self.limits, Some(GroupLimitVerdict::Unreadable(_))) {
            verdicts.reject(LIMITS_INVALID, among);
            return *among;
        }
        let attributes = chunk.attributes();
        let over_limit = match &self.limits {
            Some(limits) => attributes.select_label(GROUP_LABEL, |group| limits.passed(group).is_some()),
            None => NodeMask::NONE,
        };
        if chunk.is_detached() {
            // Nodes of a detached chunk passed, and tasks do not change their groups.
            let over_limit = over_limit.and(among);
            verdicts.reject(LIMIT_EXCEEDED, &over_limit);
            return over_limit;
        }
        let labelled = attributes.with_label(GROUP_LABEL).and(among);
        let unlabelled = if self.affinity.is_none() && !self.strict {
            NodeMask::NONE
        } else {
            among.and_not(&labelled)
        };
        verdicts.reject(LABEL_MISSING, &unlabelled);
        let mismatched = match self.affinity {
            None => {
                verdicts.reject(AFFINITY_MISSING, &labelled);
                labelled
            }
            Some(affinity) => {
                let permitted = |group: &str| permits(affinity, group, self.compatibility);
                let mismatched = labelled.and_not(&attributes.select_label(GROUP_LABEL, permitted));
                verdicts.reject(MISMATCH, &mismatched);
                mismatched
            }
        };
        let over_limit = over_limit.and(among).and_not(&mismatched);
        verdicts.reject(LIMIT_EXCEEDED, &over_limit);
        unlabelled.or(&mismatched).or(&over_limit)
    }

    fn reason(&self, number: u16) -> Reason {
        let (code, message) = REASONS.get(usize::from(number)).copied().unwrap_or_default();
        let message = match &self.limits {
            // The reference writes the error into its log only.
            Some(GroupLimitVerdict::Unreadable(error))
                if number == LIMITS_INVALID && self.compatibility == Compatibility::Corrected =>
            {
                format!("{message}: {error}")
            }
            _ => message.to_owned(),
        };
        Reason::new(NAME, code, message, Resolution::Unresolvable)
    }

    fn has_lasting_reasons(&self) -> bool {
        true
    }

    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement> {
        let group = chunk.attributes().label(GROUP_LABEL, offset);
        let passed = self.limits.as_ref().zip(group).filter(|_| number == LIMIT_EXCEEDED);
        let Some((group, passed)) = passed.and_then(|(limits, group)| Some((group, limits.passed(group)?))) else {
            return Vec::new();
        };
        let measured = [
            (format!("{} in group {group}", passed.resource), passed.wanted as f64),
            ("limit".to_owned(), passed.limit as f64),
        ];
        let measured = measured.into_iter();
        measured
            .map(|(name, amount)| Measurement::of_resource(name, &passed.resource, amount))
            .collect()
    }
}

/// Score of one task class.
struct GroupScorer<'a, F>(RecordValues<'a, F>);

/// Scorer with the scores of groups.
pub(super) fn group_scorer(cluster_state: &ClusterState, scores: BTreeMap<Arc<str>, f64>) -> impl NodeScorer {
    let compute = move |chunk: &NodeChunk, values: &mut ChunkScores| {
        let score = |group: &str| scores.get(group).copied().unwrap_or(0.0);
        chunk.attributes().map_label(GROUP_LABEL, score, values);
        None
    };
    GroupScorer(RecordValues::new(cluster_state, compute))
}

impl<F: Fn(&NodeChunk, &mut ChunkScores) -> Option<f64>> NodeScorer for GroupScorer<'_, F> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        if let Some(scores) = parts.first_mut() {
            self.0.fill(chunk, scores);
        }
    }
}
