//! Choice of a node for one stored task, as the actions of a cycle choose it.

use std::sync::Arc;

use super::pass::{ArrivingTask, PlacePass, status_filters};
use super::ranking::number_of;
use crate::decide::candidates::{ChunkSlice, NodeCandidates};
use crate::decide::classes::ClassLookup;
use crate::decide::plugin_selection::PluginSelection;
use crate::decide::query::{NodeQuery, ResourceFit};
use crate::decide::reduce;
use crate::model::{NodeMask, NodeSlot, Problem, TaskClass, TaskRecord, TaskStatus};
use crate::plugin::{ChunkRejections, NodeFilter, PluginContext, Resolution};
use crate::policy::Policy;

/// Amounts that a node must have for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeGradient {
    /// Idle amounts.
    Idle,
    /// Amounts that will be idle once releasing tasks are gone.
    FutureIdle,
    /// No amounts: the task requests none.
    Any,
    /// Free amounts are not checked: other tasks will be evicted for the task and are treated as ended.
    Released,
}

impl NodeGradient {
    /// Status that the task will have on the node.
    pub(crate) fn status(self) -> TaskStatus {
        match self {
            Self::Idle | Self::Any => TaskStatus::Allocated,
            Self::FutureIdle | Self::Released => TaskStatus::Pipelined,
        }
    }
}

/// Nodes that pass, chunk by chunk: the slot of the chunk's first place, and the places.
pub(crate) type PassingNodes = Vec<(NodeSlot, NodeMask)>;

/// Choice among the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    /// Best nodes, the best one first.
    Ranked(Vec<NodeSlot>),
    /// No node passes every filter.
    NoneFits,
    /// Several nodes pass, and a plugin cannot score them for the task.
    Unscored(Problem),
}

/// Chooser of nodes under a policy.
#[derive(Debug)]
pub(crate) struct NodeChooser<'p> {
    pub(super) policy: &'p Policy,
}

impl<'p> NodeChooser<'p> {
    pub(crate) fn new(policy: &'p Policy) -> Self {
        Self { policy }
    }

    /// Nodes that pass every filter for a task, among these nodes or all nodes.
    ///
    /// # Errors
    /// A filter cannot read something in the task.
    pub(crate) fn passing(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        gradient: NodeGradient,
        among: Option<&PassingNodes>,
    ) -> Result<PassingNodes, Problem> {
        self.judged(context, task, gradient, among, passing_of)
    }

    /// Nodes that pass every filter for a task, or that evictions can make pass, among these nodes or all nodes. In the
    /// reference the first filter that rejects a node hides later filters.
    ///
    /// # Errors
    /// The errors of [`Self::passing`].
    pub(crate) fn resolvable(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        among: Option<&PassingNodes>,
    ) -> Result<PassingNodes, Problem> {
        let hides = self.policy.compatibility().is_upstream();
        self.judged(context, task, NodeGradient::Released, among, |slice, filters| {
            resolvable_of(slice, filters, hides)
        })
    }

    /// Nodes that `judge` selects by the filters for a task, chunk by chunk.
    fn judged(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        gradient: NodeGradient,
        among: Option<&PassingNodes>,
        judge: impl Fn(&ChunkSlice<'_>, &[Box<dyn NodeFilter + '_>]) -> NodeMask,
    ) -> Result<PassingNodes, Problem> {
        let (query, class) = self.query_of(context, task, gradient);
        let selection = PluginSelection::Tiers(self.policy);
        let filters = status_filters(context, &selection, &query, &class, gradient.status())?;
        let candidates = candidates(context, among);
        let slices = candidates.slices.iter();
        let passing = slices.map(|slice| (slice.first_slot, judge(slice, &filters)));
        Ok(passing.filter(|(_, nodes)| !nodes.is_empty()).collect())
    }

    /// Ranks nodes that pass: all, or only the best one.
    pub(crate) fn rank(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        gradient: NodeGradient,
        passing: &PassingNodes,
        only_best: bool,
    ) -> NodeChoice {
        let mut slots = passing.iter().flat_map(|(first, nodes)| {
            let first = *first;
            nodes.iter().map(move |offset| slot_at(first, offset))
        });
        match (slots.next(), slots.next()) {
            (None, _) => return NodeChoice::NoneFits,
            // The reference does not score a node that has no competitor.
            (Some(only), None) => return NodeChoice::Ranked(vec![only]),
            _ => {}
        }
        match self.ranked(context, task, gradient, passing, only_best) {
            Ok(slots) => NodeChoice::Ranked(slots),
            Err(problem) => NodeChoice::Unscored(problem),
        }
    }

    fn ranked(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        gradient: NodeGradient,
        passing: &PassingNodes,
        only_best: bool,
    ) -> Result<Vec<NodeSlot>, Problem> {
        let (_, class) = self.query_of(context, task, gradient);
        let selection = PluginSelection::Tiers(self.policy);
        let arriving = ArrivingTask::new(task, gradient.status(), self.policy);
        let mut pass = PlacePass::without_filters(context, &selection, &class, &arriving)?;
        let candidates = candidates(context, Some(passing));
        let mut keys = pass.rank_keys(&candidates, usize::MAX, &|| false)?.unwrap_or_default();
        if only_best {
            return Ok(keys.into_iter().min().map(number_of).into_iter().collect());
        }
        keys.sort_unstable();
        Ok(keys.into_iter().map(number_of).collect())
    }

    /// Query and class of a task.
    fn query_of(
        &self,
        context: PluginContext<'_>,
        task: &TaskRecord,
        gradient: NodeGradient,
    ) -> (NodeQuery, TaskClass) {
        let resources = Arc::clone(context.cluster_state.resources());
        let class = ClassLookup::of(context.cluster_state, self.policy, &[]).class_of(task, &resources);
        let resource_fit = match gradient {
            NodeGradient::Idle | NodeGradient::FutureIdle => ResourceFit::FutureIdle,
            NodeGradient::Any | NodeGradient::Released => ResourceFit::None,
        };
        (NodeQuery::about_nodes(context.now, resources, resource_fit), class)
    }
}

fn slot_at(first: NodeSlot, offset: usize) -> NodeSlot {
    NodeSlot::try_from(offset).map_or(first, |offset| first + offset)
}

/// Candidates: these nodes, or all.
fn candidates<'v>(context: PluginContext<'v>, among: Option<&PassingNodes>) -> NodeCandidates<'v> {
    let mut all = NodeCandidates::of(context.cluster_state, None);
    let Some(among) = among else { return all };
    for slice in &mut all.slices {
        let own = among.iter().find(|(first, _)| *first == slice.first_slot);
        slice.candidates = own.map_or(NodeMask::NONE, |(_, nodes)| nodes.and(&slice.candidates));
    }
    all.slices.retain(|slice| !slice.candidates.is_empty());
    all
}

/// Nodes of a slice that pass every filter.
fn passing_of(slice: &ChunkSlice<'_>, filters: &[Box<dyn NodeFilter + '_>]) -> NodeMask {
    let mut rejections = ChunkRejections::without_reasons();
    reduce::conjunction(filters, &slice.candidates, |filter, left| {
        filter.filter(slice.chunk, left, &mut rejections).and(left)
    })
}

/// Nodes of a slice that no filter rejects for good. If rejections hide later ones, a node that evictions can make pass one
/// filter is not shown to the next.
fn resolvable_of(slice: &ChunkSlice<'_>, filters: &[Box<dyn NodeFilter + '_>], hides: bool) -> NodeMask {
    let (mut left, mut resolvable) = (slice.candidates, NodeMask::NONE);
    for filter in filters {
        let mut rejections = ChunkRejections::default();
        let rejected = filter.filter(slice.chunk, &left, &mut rejections).and(&left);
        let mut unresolvable = NodeMask::NONE;
        for (number, nodes) in rejections.drain() {
            if filter.reason(number).resolution == Resolution::Unresolvable {
                unresolvable = unresolvable.or(&nodes);
            }
        }
        if hides {
            resolvable = resolvable.or(&rejected.and_not(&unresolvable));
            left = left.and_not(&rejected);
        } else {
            left = left.and_not(&unresolvable);
        }
    }
    left.or(&resolvable)
}
