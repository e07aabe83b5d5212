//! Reductions that Volcano has and the service does not ask by themselves: stub plugins return recorded results, and a reduction
//! of them has the recorded result.

use std::collections::BTreeMap;

/// Node order score of one node: the sum in order, from 0; or the first error.
pub(crate) fn node_order<E>(results: impl IntoIterator<Item = Result<f64, E>>) -> Result<f64, E> {
    results.into_iter().try_fold(0.0, |sum, result| Ok(sum + result?))
}

/// Sum of batch scores per node, in order. A node that no plugin names has no entry.
pub(crate) fn batch_node_order<N: Ord, E>(
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
pub(crate) fn prioritize<N: Ord, E, B>(
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
pub(crate) fn best<N: Ord + Clone>(totals: &BTreeMap<N, f64>) -> Vec<N> {
    let largest = totals.values().copied().fold(f64::NEG_INFINITY, f64::max);
    let with_it = totals.iter().filter(|(_, total)| **total >= largest);
    with_it.map(|(node, _)| node.clone()).collect()
}

/// Node that a plugin picks by itself: the first result that names one.
pub(crate) fn best_node<N>(results: impl IntoIterator<Item = Option<N>>) -> Option<N> {
    results.into_iter().flatten().next()
}

/// Result of the check before predicates: the first error.
pub(crate) fn pre_predicate<E>(results: impl IntoIterator<Item = Result<(), E>>) -> Result<(), E> {
    results.into_iter().collect()
}

/// Predicates of one node: the first rejection; `None`: the node passes.
pub(crate) fn predicate<R>(results: impl IntoIterator<Item = Option<R>>) -> Option<R> {
    results.into_iter().flatten().next()
}

/// Kinds of rejection that Volcano's actions tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeRejectionKind {
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
pub(crate) fn allocate_fit(rejection: Option<NodeRejectionKind>) -> bool {
    matches!(rejection, None | Some(NodeRejectionKind::Success))
}

/// True if the preempt action takes the node after [`predicate`].
pub(crate) fn preempt_fit(rejection: Option<NodeRejectionKind>) -> bool {
    matches!(
        rejection,
        None | Some(NodeRejectionKind::Success | NodeRejectionKind::Unschedulable)
    )
}

/// Victims that plugins name of their own accord: the union over a tier; the first tier with any decides.
pub(crate) fn victim_tasks<T, V>(tiers: impl IntoIterator<Item = V>) -> Vec<T>
where
    T: Clone + PartialEq,
    V: IntoIterator<Item = Vec<T>>,
{
    for tier in tiers {
        let mut union: Vec<T> = Vec::new();
        for task in tier.into_iter().flatten() {
            if !union.contains(&task) {
                union.push(task);
            }
        }
        if !union.is_empty() {
            return union;
        }
    }
    Vec::new()
}
