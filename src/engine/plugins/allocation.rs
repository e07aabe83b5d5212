//! The kernel that `binpack` and `resource-strategy-fit` share: a weighted mean of how full, or how free, nodes become.

#[cfg(not(feature = "portable"))]
use multiversion::multiversion;

use crate::engine::model::{CHUNK, Chunk, ResourceId, Vector};
use crate::engine::plugin::Scores;

/// The highest score that one plugin of weight 1 gives.
const MAX_NODE_SCORE: i64 = 100;

/// What is good about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    /// That it becomes full: (used + requested) / allocatable.
    Most,
    /// That it stays free: (allocatable − used − requested) / allocatable.
    Least,
}

/// One requested resource that has a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Term {
    id: ResourceId,
    requested: f64,
    weight: f64,
    strategy: Strategy,
}

/// The mean over the resources that a task class requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mean {
    terms: Vec<Term>,
    /// Wraps like the reference's 64-bit integer.
    weight_sum: i64,
    factor: f64,
}

impl Mean {
    /// A mean over nothing yet, for a plugin of this weight.
    pub(super) fn new(plugin_weight: i64) -> Self {
        Self {
            terms: Vec::new(),
            weight_sum: 0,
            factor: MAX_NODE_SCORE.wrapping_mul(plugin_weight) as f64,
        }
    }

    /// Adds a requested resource; call in the order in which the reference adds up. Without a strategy it scores 0, but
    /// its weight still thins the others out, and so does it on nodes that lack it.
    pub(super) fn add(&mut self, id: ResourceId, requested: f64, strategy: Option<Strategy>, weight: i64) {
        self.weight_sum = self.weight_sum.wrapping_add(weight);
        if let (Some(strategy), true) = (strategy, weight != 0) {
            self.terms.push(Term {
                id,
                requested,
                weight: weight as f64,
                strategy,
            });
        }
    }

    /// Scores every place of a chunk. Each operation is the reference's, in its order, so that results are equal to the
    /// last bit: `fin · w / cap`, summed, divided by the sum of weights, times 100 · weight.
    pub(super) fn score(&self, chunk: &Chunk, scores: &mut Scores) {
        scores.fill(0.0);
        let mut over: Scores = [0.0; CHUNK];
        for term in &self.terms {
            if chunk.lacks(term.id, Vector::Allocatable) {
                continue;
            }
            let allocatable = &chunk.column(term.id, Vector::Allocatable).values;
            let used = &chunk.column(term.id, Vector::Used).values;
            match term.strategy {
                Strategy::Most => add_most(term, allocatable, used, scores, &mut over),
                Strategy::Least => add_least(term, allocatable, used, scores, &mut over),
            }
        }
        // Dividing by 1 changes no bit.
        let divisor = if self.weight_sum > 0 {
            self.weight_sum as f64
        } else {
            1.0
        };
        finish(scores, &over, divisor, self.factor);
    }
}

/// The mean, and 0 where something requested does not fit.
#[cfg_attr(not(feature = "portable"), multiversion(targets("x86_64+avx2")))]
fn finish(scores: &mut Scores, over: &Scores, divisor: f64, factor: f64) {
    for (score, over) in scores.iter_mut().zip(over) {
        let mean = *score / divisor * factor;
        *score = if *over == 0.0 { mean } else { 0.0 };
    }
}

#[cfg_attr(not(feature = "portable"), multiversion(targets("x86_64+avx2")))]
fn add_most(term: &Term, allocatable: &Scores, used: &Scores, scores: &mut Scores, over: &mut Scores) {
    let columns = allocatable.iter().zip(used);
    for ((score, over), (&capacity, &used)) in scores.iter_mut().zip(over).zip(columns) {
        let finally = term.requested + used;
        let part = finally * term.weight / capacity;
        *score += if capacity == 0.0 { 0.0 } else { part };
        *over = if capacity != 0.0 && finally > capacity {
            1.0
        } else {
            *over
        };
    }
}

#[cfg_attr(not(feature = "portable"), multiversion(targets("x86_64+avx2")))]
fn add_least(term: &Term, allocatable: &Scores, used: &Scores, scores: &mut Scores, over: &mut Scores) {
    let columns = allocatable.iter().zip(used);
    for ((score, over), (&capacity, &used)) in scores.iter_mut().zip(over).zip(columns) {
        let finally = term.requested + used;
        let part = (capacity - finally) * term.weight / capacity;
        *score += if capacity == 0.0 { 0.0 } else { part };
        *over = if capacity != 0.0 && finally > capacity {
            1.0
        } else {
            *over
        };
    }
}
