//! Reductions of several plugins' results to one: Volcano's tiers, over results given as data.
//!
//! "In order" means tier by tier, and in a tier plugin by plugin, for plugins that are switched on and have the hook
//! ([`Policy::filters`](crate::policy::Policy::filters), `scorers`). An iterator is read only as far as the
//! reduction needs.

use std::collections::BTreeMap;

use crate::model::NodeMask;

/// Adds one plugin's scores to the sums so far.
pub fn add_scores(sums: &mut [f64], scores: &[f64]) {
    for (sum, score) in sums.iter_mut().zip(scores) {
        *sum += score;
    }
}

/// Node order score of one node: the sum in order, from 0.
///
/// # Errors
/// The first error. Later plugins are not evaluated.
pub fn node_order<E>(results: impl IntoIterator<Item = Result<f64, E>>) -> Result<f64, E> {
    results.into_iter().try_fold(0.0, |sum, result| {
        let mut sums = [sum];
        add_scores(&mut sums, &[result?]);
        let [sum] = sums;
        Ok(sum)
    })
}

/// Sum of batch scores per node, in order. A node that no plugin names has no entry.
///
/// # Errors
/// The first error; it holds for all nodes.
pub fn batch_node_order<N: Ord, E>(
    results: impl IntoIterator<Item = Result<BTreeMap<N, f64>, E>>,
) -> Result<BTreeMap<N, f64>, E> {
    let mut sums = BTreeMap::new();
    for result in results {
        for (node, score) in result? {
            *sums.entry(node).or_insert(0.0) += score;
        }
    }
    Ok(sums)
}

/// Totals that actions choose by: each candidate's node order score plus its batch score. A candidate whose node order
/// failed has node order score 0. If the batch failed, the result is empty.
pub fn prioritize<N: Ord, E, B>(
    candidates: impl IntoIterator<Item = (N, Result<f64, E>)>,
    batch: &Result<BTreeMap<N, f64>, B>,
) -> BTreeMap<N, f64> {
    let Ok(batch) = batch else {
        return BTreeMap::new();
    };
    let total = |(node, score): (N, Result<f64, E>)| {
        let total = score.unwrap_or(0.0) + batch.get(&node).copied().unwrap_or(0.0);
        (node, total)
    };
    candidates.into_iter().map(total).collect()
}

/// Nodes with the largest total, sorted.
pub fn best<N: Ord + Clone>(totals: &BTreeMap<N, f64>) -> Vec<N> {
    let largest = totals.values().copied().fold(f64::NEG_INFINITY, f64::max);
    let with_it = totals.iter().filter(|(_, total)| **total >= largest);
    with_it.map(|(node, _)| node.clone()).collect()
}

/// Node that a plugin picks by itself: the first result that names one.
pub fn best_node<N>(results: impl IntoIterator<Item = Option<N>>) -> Option<N> {
    results.into_iter().flatten().next()
}

/// Result of the check before predicates.
///
/// # Errors
/// The first error. Later plugins are not evaluated.
pub fn pre_predicate<E>(results: impl IntoIterator<Item = Result<(), E>>) -> Result<(), E> {
    results.into_iter().collect()
}

/// Nodes that pass all filters. Filters run in order, each on the nodes that earlier filters passed; `refused` runs one
/// filter and returns the rejected nodes.
pub fn conjunction<F>(
    filters: impl IntoIterator<Item = F>,
    among: &NodeMask,
    mut refused: impl FnMut(F, &NodeMask) -> NodeMask,
) -> NodeMask {
    let mut left = *among;
    if left.is_empty() {
        return left;
    }
    for filter in filters {
        left = left.and_not(&refused(filter, &left));
        if left.is_empty() {
            break;
        }
    }
    left
}

/// Predicates of one node: the first rejection; `None`: the node passes.
pub fn predicate<R>(results: impl IntoIterator<Item = Option<R>>) -> Option<R> {
    let mut rejection = None;
    conjunction(results, &NodeMask::ALL, |result, left| {
        rejection = result;
        if rejection.is_some() { *left } else { NodeMask::NONE }
    });
    rejection
}

/// Kinds of rejection that Volcano's actions tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRejectionKind {
    /// Error without a status.
    NoStatus,
    /// Status Success. It ends the chain, but actions take the node as fitting.
    Success,
    /// Status Error.
    Error,
    /// Status Unschedulable: preemption may help.
    Unschedulable,
    /// Status `UnschedulableAndUnresolvable`: preemption cannot help.
    UnschedulableAndUnresolvable,
    /// Status Wait.
    Wait,
    /// Status Skip.
    Skip,
}

/// True if the allocate action takes the node after [`predicate`].
pub fn allocate_fit(rejection: Option<NodeRejectionKind>) -> bool {
    matches!(rejection, None | Some(NodeRejectionKind::Success))
}

/// True if the preempt action takes the node after [`predicate`].
pub fn preempt_fit(rejection: Option<NodeRejectionKind>) -> bool {
    matches!(
        rejection,
        None | Some(NodeRejectionKind::Success | NodeRejectionKind::Unschedulable)
    )
}
