//! Scores by any list of resources: `NodeResourcesFit` with its strategies, and `NodeResourcesBalancedAllocation`.

use std::sync::Arc;

use crate::model::resource_name::ResourceKind;
use crate::model::{CHUNK_SIZE, ClusterState, IntegerColumn, NodeChunk, PodSum, ResourceId, TaskClass};
use crate::plugin::{ChunkScores, HookNumbers, NodeScorer};
use crate::plugins::integer_arithmetic::{IntegerArithmetic, MAX_SCORE};
use crate::plugins::nodeorder::{ScorePartKind, allocatable, truncate};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Way to a score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeFitStrategy {
    Least,
    Most,
    /// Points of a broken line: use in percent, and score from 0 to 100.
    Ratio(Vec<(i64, i64)>),
    /// Even use of all resources.
    Balanced,
}

/// Resource with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeFitResource {
    pub(super) name: Arc<str>,
    pub(super) weight: i64,
}

/// Resources, and the way to their score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllocationRules {
    pub(super) strategy: NodeFitStrategy,
    pub(super) resources: Vec<NodeFitResource>,
}

impl AllocationRules {
    /// Part of `nodeorder` with the same scores, and the device that it compares; `None`: there is none.
    pub(super) fn as_part(&self) -> Option<(ScorePartKind, Option<Arc<str>>)> {
        let [cpu, memory, others @ ..] = self.resources.as_slice() else {
            return None;
        };
        if *cpu.name != *CPU || *memory.name != *MEMORY || cpu.weight != memory.weight {
            return None;
        }
        match (&self.strategy, others) {
            (NodeFitStrategy::Least, []) => Some((ScorePartKind::LeastRequested, None)),
            (NodeFitStrategy::Most, []) => Some((ScorePartKind::MostRequested, None)),
            (NodeFitStrategy::Balanced, []) => Some((ScorePartKind::BalancedResource, None)),
            (NodeFitStrategy::Balanced, [device]) if ResourceKind::of(&device.name) == ResourceKind::Scalar => {
                Some((ScorePartKind::BalancedResource, Some(Arc::clone(&device.name))))
            }
            _ => None,
        }
    }
}

/// Resource of a class.
#[derive(Debug)]
struct ComparedResource {
    id: ResourceId,
    request: i64,
    weight: i64,
    sum: PodSum,
}

/// Use of a resource on one node, in Kubernetes' units. The node has the resource.
#[derive(Clone, Copy, Debug)]
struct ResourceUse {
    /// Requests of the pods on the node and of the class.
    requested: i64,
    /// Requests of the pods on the node.
    allocated: i64,
    allocatable: i64,
    weight: i64,
}

/// Prepared score of a class.
#[derive(Debug)]
pub(super) struct AllocationScorer<'a> {
    cluster_state: &'a ClusterState,
    strategy: &'a NodeFitStrategy,
    resources: Vec<ComparedResource>,
}

impl<'a> AllocationScorer<'a> {
    /// Scorer of a class; `None`: its balance is not compared, because it requests nothing.
    pub(super) fn new(rules: &'a AllocationRules, cluster_state: &'a ClusterState, class: &TaskClass) -> Option<Self> {
        let is_balanced = rules.strategy == NodeFitStrategy::Balanced;
        let resources: Vec<ComparedResource> = rules
            .resources
            .iter()
            .filter_map(|own| compared(own, is_balanced, cluster_state, class))
            .collect();
        if is_balanced && resources.iter().all(|own| own.request == 0) {
            return None;
        }
        Some(Self {
            cluster_state,
            strategy: &rules.strategy,
            resources,
        })
    }

    fn score_of(&self, used: &[ResourceUse]) -> i64 {
        match self.strategy {
            NodeFitStrategy::Least => weighted_mean(used, |own| {
                let free = own.allocatable.saturating_sub(own.requested).max(0);
                percent(free, own.allocatable)
            }),
            NodeFitStrategy::Most => {
                weighted_mean(used, |own| percent(own.requested.min(own.allocatable), own.allocatable))
            }
            NodeFitStrategy::Ratio(line) => ratio_score(line, used),
            NodeFitStrategy::Balanced => {
                let with = balance(used.iter().map(|own| (own.requested, own.allocatable)));
                let without = balance(used.iter().map(|own| (own.allocated, own.allocatable)));
                MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
            }
        }
    }
}

/// Resource of a class; `None`: no node has it, or kube-scheduler leaves it out.
fn compared(
    own: &NodeFitResource,
    is_balanced: bool,
    cluster_state: &ClusterState,
    class: &TaskClass,
) -> Option<ComparedResource> {
    if matches!(
        ResourceKind::of(&own.name),
        ResourceKind::Pods | ResourceKind::Uncounted
    ) {
        return None;
    }
    let id = cluster_state.resources().get(&own.name)?;
    let [cpu, memory] = class.container_nonzero;
    let (request, sum) = match &*own.name {
        CPU if !is_balanced => (cpu, PodSum::NonzeroRequests),
        MEMORY if !is_balanced => (memory, PodSum::NonzeroRequests),
        _ => (class.kubernetes_request(id), PodSum::Requests),
    };
    let always_counts = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&&*own.name);
    (request != 0 || always_counts).then_some(ComparedResource {
        id,
        request,
        weight: own.weight,
        sum,
    })
}

impl NodeScorer for AllocationScorer<'_> {
    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        let columns: Vec<[IntegerColumn; 2]> = self
            .resources
            .iter()
            .map(|own| {
                let used = chunk.pod_sums(self.cluster_state, own.id, own.sum);
                [allocatable(chunk, own.id), used]
            })
            .collect();
        let mut used = Vec::with_capacity(columns.len());
        for (offset, score) in scores.iter_mut().enumerate().take(CHUNK_SIZE) {
            used.clear();
            for (own, [capacities, sums]) in self.resources.iter().zip(&columns) {
                let at = |column: &IntegerColumn| column.get(offset).copied().unwrap_or(0);
                let (capacity, allocated) = (at(capacities), at(sums));
                if capacity > 0 {
                    used.push(ResourceUse {
                        requested: allocated.saturating_add(own.request),
                        allocated,
                        allocatable: capacity,
                        weight: own.weight,
                    });
                }
            }
            *score = self.score_of(&used) as f64;
        }
    }
}

fn percent(amount: i64, capacity: i64) -> i64 {
    IntegerArithmetic::Exact.percent(amount, capacity)
}

fn weighted_mean(used: &[ResourceUse], score: impl Fn(&ResourceUse) -> i64) -> i64 {
    let weights: i64 = used.iter().map(|own| own.weight).sum();
    let scores: i64 = used.iter().map(|own| score(own) * own.weight).sum();
    if weights == 0 { 0 } else { scores / weights }
}

/// Mean of the scores above 0, rounded half up.
fn ratio_score(line: &[(i64, i64)], used: &[ResourceUse]) -> i64 {
    let (mut scores, mut weights) = (0, 0);
    for own in used {
        let use_percent = if own.requested > own.allocatable {
            MAX_SCORE
        } else {
            percent(own.requested, own.allocatable)
        };
        let score = line_value(line, use_percent);
        if score > 0 {
            scores += score * own.weight;
            weights += own.weight;
        }
    }
    if weights == 0 {
        return 0;
    }
    truncate((scores as f64 / weights as f64).round())
}

/// Value of a broken line, whose first and last values go on.
fn line_value(line: &[(i64, i64)], at: i64) -> i64 {
    let mut before: Option<(i64, i64)> = None;
    for &(percent, score) in line {
        if at <= percent {
            return before.map_or(score, |(from, least)| {
                least + (score - least) * (at - from) / (percent - from)
            });
        }
        before = Some((percent, score));
    }
    before.map_or(0, |(_, score)| score)
}

/// Balance from 0 to 100: 100 less the standard deviation of the fractions in use.
fn balance(used: impl Iterator<Item = (i64, i64)>) -> i64 {
    let fractions: Vec<f64> = used
        .map(|(used, capacity)| (used as f64 / capacity as f64).min(1.0))
        .collect();
    let deviation = match fractions.as_slice() {
        [] | [_] => 0.0,
        [one, other] => ((one - other) / 2.0).abs(),
        all => {
            let count = all.len() as f64;
            let mean = all.iter().fold(0.0, |sum, fraction| sum + fraction) / count;
            let squares = all
                .iter()
                .fold(0.0, |sum, fraction| sum + (fraction - mean) * (fraction - mean));
            (squares / count).sqrt()
        }
    };
    truncate((1.0 - deviation) * MAX_SCORE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let line = [(10, 0), (50, 100), (90, 30)];
        for (at, value) in [(0, 0), (10, 0), (30, 50), (50, 100), (51, 99), (90, 30), (100, 30)] {
            assert_eq!(line_value(&line, at), value, "{at}");
        }
    }

    #[test]
    fn three_even_fractions_are_balanced() {
        assert_eq!(balance([(1, 2), (2, 4), (4, 8)].into_iter()), 100);
        assert_eq!(balance([(0, 2), (4, 4)].into_iter()), 50);
        assert_eq!(balance([(1, 2)].into_iter()), 100);
    }
}
