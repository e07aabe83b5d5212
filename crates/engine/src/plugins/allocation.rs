//! Kernel that `binpack` and `resource-strategy-fit` share: a weighted mean of how full, or how free, nodes become.

use pumice_kernels::division::reciprocal;
use pumice_kernels::mean::{MeanScale, TermColumns, divided_mean, weighted_mean};
use smallvec::SmallVec;

use super::integer_arithmetic::MAX_SCORE;
use crate::model::{CHUNK_SIZE, ChunkResource, NodeChunk, NodeVector, ResourceId};
use crate::plugin::ChunkScores;

/// Strategies by which a node is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AllocationStrategy {
    /// Prefers full nodes: (used + requested) / allocatable.
    Most,
    /// Prefers free nodes: (allocatable − used − requested) / allocatable.
    Least,
}

impl AllocationStrategy {
    /// Names of the strategies in documents and annotations.
    pub(super) const NAMES: [&str; 2] = ["MostAllocated", "LeastAllocated"];

    /// Strategy of a name; `None`: there is none.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "MostAllocated" => Some(Self::Most),
            "LeastAllocated" => Some(Self::Least),
            _ => None,
        }
    }

    /// Name in documents and annotations.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Most => "MostAllocated",
            Self::Least => "LeastAllocated",
        }
    }
}

/// One requested resource that has a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AllocationTerm {
    id: ResourceId,
    requested: f64,
    weight: f64,
    strategy: AllocationStrategy,
}

/// Weighted mean over the resources that a task class requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StrategyMean {
    terms: Vec<AllocationTerm>,
    /// Sum of weights; it wraps like the reference's 64-bit integer.
    weight_sum: i64,
    factor: f64,
}

/// Placeholder where no reciprocals are used.
static NO_RECIPROCALS: ChunkScores = [0.0; CHUNK_SIZE];

impl StrategyMean {
    /// Mean without terms, for a plugin of this weight.
    pub(super) fn new(plugin_weight: i64) -> Self {
        Self {
            terms: Vec::new(),
            weight_sum: 0,
            factor: MAX_SCORE.wrapping_mul(plugin_weight) as f64,
        }
    }

    /// Adds a requested resource; the caller adds them in the reference's order. A resource without a strategy scores
    /// 0, but its weight still reduces the share of the others, and so does the weight of a resource on nodes that lack
    /// it.
    pub(super) fn add(&mut self, id: ResourceId, requested: f64, strategy: Option<AllocationStrategy>, weight: i64) {
        self.weight_sum = self.weight_sum.wrapping_add(weight);
        if let (Some(strategy), true) = (strategy, weight != 0) {
            self.terms.push(AllocationTerm {
                id,
                requested,
                weight: weight as f64,
                strategy,
            });
        }
    }

    /// Scores every node of a chunk: `fin · w / cap`, summed, divided by the sum of weights, times 100 · weight. The
    /// operations have the reference's order, so results are bit-identical.
    pub(super) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        // A division by 1 changes no bit.
        let divisor = (self.weight_sum.max(1)) as f64;
        let mut known = reciprocal(divisor);
        let mut all_have = true;
        let mut stocks: SmallVec<[TermColumns<'_>; 8]> = SmallVec::new();
        for term in &self.terms {
            let resource = chunk.resource(term.id);
            if resource.is_absent(NodeVector::Allocatable) {
                continue;
            }
            let reciprocals = resource.reciprocals();
            known = known.filter(|_| reciprocals.is_some());
            all_have &= chunk.live().and_not(&resource.offered()).is_empty();
            stocks.push(term.columns(resource, reciprocals.unwrap_or(&NO_RECIPROCALS)));
        }
        let scale = MeanScale {
            divisor,
            reciprocal: known.unwrap_or(0.0),
            factor: self.factor,
        };
        let lanes = chunk.lanes();
        if known.is_some() {
            weighted_mean(&stocks, scale, !all_have, lanes, scores);
        } else {
            // Some amount has no exact reciprocal, so only a division gives its quotient.
            divided_mean(&stocks, scale, lanes, scores);
        }
    }
}

impl AllocationTerm {
    fn columns<'k>(&self, resource: ChunkResource<'k>, reciprocals: &'k ChunkScores) -> TermColumns<'k> {
        let (weight, free) = match self.strategy {
            AllocationStrategy::Most => (-self.weight, 0.0),
            AllocationStrategy::Least => (self.weight, 1.0),
        };
        TermColumns {
            requested: self.requested,
            weight,
            free_factor: free,
            allocatable: &resource.column(NodeVector::Allocatable).values,
            used: &resource.column(NodeVector::Used).values,
            reciprocals,
        }
    }
}
