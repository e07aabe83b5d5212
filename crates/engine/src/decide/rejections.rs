//! Rejections of filters, gathered by reason.

use smallvec::SmallVec;

use super::builtin_filters::node_state_reason;
use super::candidates::ChunkSlice;
use super::hook_inputs::HookInputs;
use super::query::{FilterDetail, NodeQuery, RejectionGroup};
use crate::model::{CHUNK_SIZE, ClusterState, NodeMask, NodeSlot};
use crate::plugin::{ChunkRejections, Measurement, NodeFilter, Reason, Resolution};

/// Filter of a class, with the nodes that it has rejected so far.
struct FilterStage<'a> {
    filterer: Box<dyn NodeFilter + 'a>,
    /// Rejected nodes by number of the reason.
    rejected: Vec<RejectedNodes>,
}

impl FilterStage<'_> {
    /// Rejected nodes of a reason.
    fn rejected(&mut self, number: u16) -> Option<&mut RejectedNodes> {
        let number = usize::from(number);
        if self.rejected.len() <= number {
            self.rejected.resize(number + 1, RejectedNodes::default());
        }
        self.rejected.get_mut(number)
    }

    /// True if no eviction removes the reason.
    fn is_lasting(&mut self, number: u16) -> bool {
        let resolution = self.rejected(number).and_then(|rejected| rejected.resolution);
        let resolution = resolution.unwrap_or_else(|| {
            let resolution = self.filterer.reason(number).resolution;
            if let Some(rejected) = self.rejected(number) {
                rejected.resolution = Some(resolution);
            }
            resolution
        });
        resolution == Resolution::Unresolvable
    }
}

/// Nodes rejected for one reason.
#[derive(Clone, Default)]
struct RejectedNodes {
    count: u32,
    /// Slots, if the caller wants them.
    slots: Vec<NodeSlot>,
    /// Resolution of the reason, from the first question about it.
    resolution: Option<Resolution>,
}

/// Nodes of one chunk that a filter rejected for one reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceRejection {
    stage: usize,
    number: u16,
    nodes: NodeMask,
}

impl RejectedNodes {
    fn of(slots: &[NodeSlot]) -> Self {
        Self {
            count: u32::try_from(slots.len()).unwrap_or(u32::MAX),
            slots: slots.to_vec(),
            resolution: None,
        }
    }
}

/// Filters of one task class, with their rejections.
pub(super) struct RejectionTally<'a> {
    stages: Vec<FilterStage<'a>>,
    verdicts: ChunkRejections,
    keeps_slots: bool,
    /// Rejections of the present chunk, not yet added to the totals.
    chunk_rejections: SmallVec<[SliceRejection; 8]>,
    /// Filters whose reasons have precedence over reasons of earlier filters that evictions remove.
    lasting_stages: SmallVec<[usize; 4]>,
}

impl<'a> RejectionTally<'a> {
    /// Tally without rejections. `prefers_lasting`: a lasting reason has precedence over a reason that evictions
    /// remove.
    pub(super) fn new(filterers: Vec<Box<dyn NodeFilter + 'a>>, query: &NodeQuery, prefers_lasting: bool) -> Self {
        let stage = |filterer| FilterStage {
            filterer,
            rejected: Vec::new(),
        };
        let numbered = filterers.iter().enumerate();
        let lasting = numbered.filter(|(_, filterer)| prefers_lasting && filterer.has_lasting_reasons());
        Self {
            lasting_stages: lasting.map(|(stage, _)| stage).collect(),
            stages: filterers.into_iter().map(stage).collect(),
            verdicts: ChunkRejections::default(),
            keeps_slots: query.detail > FilterDetail::Counts,
            chunk_rejections: SmallVec::new(),
        }
    }

    /// Numbers of all filters, in order, for a reduction.
    pub(super) fn stages(&self) -> std::ops::Range<usize> {
        0..self.stages.len()
    }

    /// Asks one filter about nodes, and notes the rejected ones until [`Self::count_slice`].
    pub(super) fn run_stage(&mut self, stage: usize, slice: &ChunkSlice<'_>, among: &NodeMask) -> NodeMask {
        let Some(filter_stage) = self.stages.get(stage) else {
            return NodeMask::NONE;
        };
        let refused = filter_stage
            .filterer
            .filter(slice.chunk, among, &mut self.verdicts)
            .and(among);
        self.chunk_rejections
            .extend(self.verdicts.drain().map(|(number, nodes)| SliceRejection {
                stage,
                number,
                nodes: nodes.and(among),
            }));
        refused
    }

    /// Inputs of the filters from outside of chunks; `None`: some filter reads more.
    pub(super) fn outside_inputs(&self) -> Option<HookInputs> {
        HookInputs::of(self.stages.iter().map(|stage| Some(stage.filterer.outside_inputs())))
    }

    /// Rejections of a chunk after the last filter. [`Self::count_slice`] adds them to the totals.
    pub(super) fn end_slice(&mut self, slice: &ChunkSlice<'_>) -> &[SliceRejection] {
        for at in 0..self.lasting_stages.len() {
            if let Some(stage) = self.lasting_stages.get(at).copied() {
                self.prefer_lasting(stage, slice);
            }
        }
        &self.chunk_rejections
    }

    /// Adds the rejections of the present chunk to the totals.
    pub(super) fn count_slice(&mut self, slice: &ChunkSlice<'_>) {
        let mut taken = std::mem::take(&mut self.chunk_rejections);
        self.count_rejections(&taken, slice);
        taken.clear();
        self.chunk_rejections = taken;
    }

    /// Adds the rejections of a chunk to the totals.
    pub(super) fn count_rejections(&mut self, rejections: &[SliceRejection], slice: &ChunkSlice<'_>) {
        for SliceRejection { stage, number, nodes } in rejections {
            let stage = self.stages.get_mut(*stage);
            let rejected = stage.and_then(|stage| stage.rejected(*number));
            if let Some(rejected) = rejected {
                rejected.count += nodes.count();
                if self.keeps_slots {
                    slice.push_slots(nodes, &mut rejected.slots);
                }
            }
        }
    }

    /// Gives nodes that an earlier filter rejected for a reason that evictions remove the lasting reasons of a filter.
    fn prefer_lasting(&mut self, stage: usize, slice: &ChunkSlice<'_>) {
        let stages = &mut self.stages;
        let mut is_lasting =
            |stage: usize, number: u16| stages.get_mut(stage).is_some_and(|own| own.is_lasting(number));
        let (mut before, mut all): (SmallVec<[usize; 8]>, _) = (SmallVec::new(), NodeMask::NONE);
        for (at, own) in self.chunk_rejections.iter().enumerate() {
            if own.stage < stage && !own.nodes.is_empty() && !is_lasting(own.stage, own.number) {
                before.push(at);
                all = all.or(&own.nodes);
            }
        }
        let Some(filter_stage) = self.stages.get_mut(stage).filter(|_| !before.is_empty()) else {
            return;
        };
        filter_stage.filterer.filter(slice.chunk, &all, &mut self.verdicts);
        for (number, nodes) in self.verdicts.drain() {
            let nodes = nodes.and(&all);
            if nodes.is_empty() || !filter_stage.is_lasting(number) {
                continue;
            }
            for at in &before {
                if let Some(own) = self.chunk_rejections.get_mut(*at) {
                    own.nodes = own.nodes.and_not(&nodes);
                }
            }
            self.chunk_rejections.push(SliceRejection { stage, number, nodes });
        }
    }

    /// Rejections, one per distinct reason, sorted; `absent` are slots without a node.
    pub(super) fn rejections(
        self,
        cluster_state: &ClusterState,
        absent: &[NodeSlot],
        query: &NodeQuery,
    ) -> Vec<RejectionGroup> {
        let mut rejections = Vec::new();
        if !absent.is_empty() {
            let reason = node_state_reason("NodeNotFound", "there is no such node");
            rejections.push(rejection_group(
                cluster_state,
                reason,
                RejectedNodes::of(absent),
                query,
                &|_| Vec::new(),
            ));
        }
        for stage in self.stages {
            for (number, refused) in (0_u16..).zip(stage.rejected) {
                if refused.count == 0 {
                    continue;
                }
                let measurements = |slot: NodeSlot| {
                    let chunk = cluster_state.chunks().get(slot as usize / CHUNK_SIZE);
                    chunk.map_or_else(Vec::new, |chunk| {
                        stage.filterer.measurements(chunk, slot as usize % CHUNK_SIZE, number)
                    })
                };
                let reason = stage.filterer.reason(number);
                rejections.push(rejection_group(cluster_state, reason, refused, query, &measurements));
            }
        }
        rejections.sort_by(|a, b| sort_key(&a.reason).cmp(&sort_key(&b.reason)));
        rejections
    }
}

fn sort_key(reason: &Reason) -> (&str, &str, &str, &str, u8) {
    let Reason {
        plugin,
        code,
        message,
        resolution,
        resource,
    } = reason;
    (plugin, code, resource, message, *resolution as u8)
}

fn rejection_group(
    cluster_state: &ClusterState,
    reason: Reason,
    RejectedNodes {
        count, slots: nodes, ..
    }: RejectedNodes,
    query: &NodeQuery,
    measurements: &dyn Fn(NodeSlot) -> Vec<Measurement>,
) -> RejectionGroup {
    let mut samples = Vec::new();
    if query.detail != FilterDetail::Counts && query.samples > 0 {
        let rank = |slot: &NodeSlot| (cluster_state.rank(*slot), *slot);
        let mut first = nodes.clone();
        if query.samples < first.len() {
            first.select_nth_unstable_by_key(query.samples, rank);
            first.truncate(query.samples);
        }
        first.sort_unstable_by_key(rank);
        samples = first.into_iter().map(|slot| (slot, measurements(slot))).collect();
    }
    RejectionGroup {
        reason,
        count,
        nodes: if query.detail == FilterDetail::Nodes {
            nodes
        } else {
            Vec::new()
        },
        samples,
    }
}
