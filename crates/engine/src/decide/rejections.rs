//! Rejections of filters, gathered by reason.

use super::builtin_filters::node_state_reason;
use super::candidates::ChunkSlice;
use super::query::{FilterDetail, NodeQuery, RejectionGroup};
use crate::model::{CHUNK_SIZE, ClusterState, NodeMask, NodeSlot};
use crate::plugin::{ChunkRejections, Measurement, NodeFilter, Reason};

/// Filter of a class, with the nodes that it has rejected so far.
struct FilterStage<'a> {
    filterer: Box<dyn NodeFilter + 'a>,
    /// Rejected nodes by number of the reason.
    rejected: Vec<RejectedNodes>,
}

/// Nodes rejected for one reason.
#[derive(Clone, Default)]
struct RejectedNodes {
    count: u32,
    /// Slots, if the caller wants them.
    slots: Vec<NodeSlot>,
}

impl RejectedNodes {
    fn of(slots: &[NodeSlot]) -> Self {
        Self {
            count: u32::try_from(slots.len()).unwrap_or(u32::MAX),
            slots: slots.to_vec(),
        }
    }
}

/// Filters of one task class, with their rejections.
pub(super) struct RejectionTally<'a> {
    stages: Vec<FilterStage<'a>>,
    verdicts: ChunkRejections,
    keeps_slots: bool,
}

impl<'a> RejectionTally<'a> {
    /// Tally without rejections.
    pub(super) fn new(filterers: Vec<Box<dyn NodeFilter + 'a>>, query: &NodeQuery) -> Self {
        let stage = |filterer| FilterStage {
            filterer,
            rejected: Vec::new(),
        };
        Self {
            stages: filterers.into_iter().map(stage).collect(),
            verdicts: ChunkRejections::default(),
            keeps_slots: query.detail > FilterDetail::Counts,
        }
    }

    /// Numbers of all filters, in order, for a reduction.
    pub(super) fn stages(&self) -> std::ops::Range<usize> {
        0..self.stages.len()
    }

    /// Asks one filter about nodes, and records the rejected ones.
    pub(super) fn run_stage(&mut self, stage: usize, part: &ChunkSlice<'_>, among: &NodeMask) -> NodeMask {
        let Some(stage) = self.stages.get_mut(stage) else {
            return NodeMask::NONE;
        };
        let refused = stage.filterer.filter(part.chunk, among, &mut self.verdicts).and(among);
        for (number, nodes) in self.verdicts.drain() {
            let (number, nodes) = (usize::from(number), nodes.and(among));
            if stage.rejected.len() <= number {
                stage.rejected.resize(number + 1, RejectedNodes::default());
            }
            if let Some(refused) = stage.rejected.get_mut(number) {
                refused.count += nodes.count();
                if self.keeps_slots {
                    part.push_slots(&nodes, &mut refused.slots);
                }
            }
        }
        refused
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
    RejectedNodes { count, slots: nodes }: RejectedNodes,
    query: &NodeQuery,
    measurements: &dyn Fn(NodeSlot) -> Vec<Measurement>,
) -> RejectionGroup {
    let mut samples = Vec::new();
    if query.detail != FilterDetail::Counts && query.samples > 0 {
        let rank = |slot: &NodeSlot| {
            (
                cluster_state.ranks().get(*slot as usize).copied().unwrap_or(u32::MAX),
                *slot,
            )
        };
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
