//! Limits and deserved amounts of queues, flat and down the tree.

use std::sync::Arc;

use super::super::queue_accounts::{QueueBounds, guarantee_sum, limits, optional_vector, unguaranteed};
use super::tree::{QuotaTree, ROOT};
use crate::model::{ClusterState, QueueRecord, ResourceAmounts, ResourceVector, UNLIMITED_AMOUNT, UNLIMITED_SCALAR};
use crate::policy::Compatibility;

/// Limits of a queue, and the amounts that it deserves.
pub(super) type BoundsAndDeserved = (QueueBounds, ResourceVector);
/// Limits and deserved amounts of each queue, by name.
pub(super) type BoundsByQueue<'a> = Vec<(&'a Arc<str>, BoundsAndDeserved)>;

/// Queue as its record limits it, until the tree says more.
struct TreeRow<'a> {
    name: &'a Arc<str>,
    /// Capability as it is written.
    written: Option<&'a ResourceAmounts>,
    own: BoundsAndDeserved,
}

/// Limits of all queues of a flat configuration: the cluster without the guarantees of others.
pub(super) fn flat_bounds<'a>(
    cluster_state: &'a ClusterState,
    total: &ResourceVector,
    compatibility: Compatibility,
) -> BoundsByQueue<'a> {
    let guaranteed = guarantee_sum(cluster_state, compatibility);
    let free = unguaranteed(total, &ResourceVector::from(&guaranteed), compatibility);
    let queues = cluster_state.queues().iter().map(|(name, stored)| {
        let bounds = QueueBounds::without_tree(&stored.record, &free, compatibility);
        let mut deserved = optional_vector(stored.record.deserved.as_ref(), compatibility);
        deserved.lower_to_limit(&bounds.real_capability);
        let deserved = deserved.larger_of(&bounds.guarantee);
        (name, (bounds, deserved))
    });
    queues.collect()
}

/// Limits of all queues of a tree. A queue that does not hang below the root may hold nothing.
pub(super) fn tree_bounds<'a>(
    cluster_state: &'a ClusterState,
    total: &ResourceVector,
    tree: &QuotaTree,
    compatibility: Compatibility,
) -> BoundsByQueue<'a> {
    let rows = cluster_state.queues().iter().map(|(name, stored)| TreeRow {
        name,
        written: stored.record.capability.as_ref(),
        own: written_bounds(&stored.record, compatibility),
    });
    let mut all: Vec<TreeRow<'a>> = rows.collect();
    let is_upstream = compatibility.is_upstream();
    let root = row_of(&all, ROOT);
    let bounds = root_bounds(root.and_then(|root| all.get(root)), total, compatibility);
    let mut open = vec![(root, tree.children.get(ROOT), bounds)];
    while let Some((row, children, mut parent)) = open.pop() {
        let is_root = row == root;
        let children = children.map_or(&[][..], Vec::as_slice).iter();
        let children: Vec<usize> = children.filter_map(|child| row_of(&all, child)).collect();
        let (mut guaranteed, mut deserved_sum) = (ResourceVector::default(), ResourceVector::default());
        let above = parent.capability.clone().unwrap_or_default();
        for child in &children {
            let Some(TreeRow { written, own, .. }) = all.get_mut(*child) else {
                continue;
            };
            let (bounds, deserved) = own;
            *deserved = deserved.larger_of(&bounds.guarantee);
            let capability = bounds.capability.get_or_insert_default();
            inherit(capability, *written, &above, compatibility);
            guaranteed.add(&bounds.guarantee);
        }
        if is_root {
            parent.guarantee = guaranteed.clone();
        }
        let free = unguaranteed(&parent.real_capability, &guaranteed, compatibility);
        for child in children {
            let Some(TreeRow { name, own, .. }) = all.get_mut(child) else {
                continue;
            };
            let (bounds, deserved) = own;
            bounds.limit_to(&free);
            if !is_upstream {
                // A queue deserves no more than it may hold, as without a tree.
                deserved.lower_to_limit(&bounds.real_capability);
                *deserved = deserved.larger_of(&bounds.guarantee);
            }
            deserved_sum.add(deserved);
            if let Some(below) = tree.children.get(*name) {
                open.push((Some(child), Some(below), bounds.clone()));
            }
        }
        if is_root && let Some(own) = row.and_then(|row| all.get_mut(row)) {
            own.own = (parent, deserved_sum);
        }
    }
    all.into_iter().map(|row| (row.name, row.own)).collect()
}

fn row_of(all: &[TreeRow<'_>], name: &str) -> Option<usize> {
    all.binary_search_by(|row| (**row.name).cmp(name)).ok()
}

/// Limits of the root: those that its record has, else none.
fn root_bounds(root: Option<&TreeRow<'_>>, total: &ResourceVector, compatibility: Compatibility) -> QueueBounds {
    let unlimited = unlimited(total);
    let mut bounds = root.map(|root| root.own.0.clone()).unwrap_or_default();
    let written = root.and_then(|root| root.written);
    let is_upstream = compatibility.is_upstream();
    let mut capability = bounds.capability.take().filter(|own| match written {
        Some(written) if !is_upstream => !written.is_empty(),
        _ => !own.is_empty(),
    });
    if let Some(capability) = capability.as_mut().filter(|_| !is_upstream) {
        inherit(capability, written, &unlimited, compatibility);
    }
    let capability = capability.unwrap_or(unlimited);
    bounds.real_capability = capability.clone();
    bounds.capability = Some(capability);
    bounds
}

fn written_bounds(queue: &QueueRecord, compatibility: Compatibility) -> BoundsAndDeserved {
    let mut bounds = QueueBounds::of(queue, compatibility);
    bounds.capability = Some(optional_vector(queue.capability.as_ref(), compatibility));
    (bounds, optional_vector(queue.deserved.as_ref(), compatibility))
}

/// Takes over the limits of the parent where the capability, as it is written, has none.
fn inherit(
    capability: &mut ResourceVector,
    written: Option<&ResourceAmounts>,
    parent: &ResourceVector,
    compatibility: Compatibility,
) {
    for (id, amount) in parent.iter() {
        if !limits(written, id, compatibility) {
            capability.set(id, amount);
        }
    }
}

/// Limit of nothing, for every resource of the cluster: all that a tree of queues takes of the cluster's total.
pub(super) fn unlimited(total: &ResourceVector) -> ResourceVector {
    let mut all = ResourceVector::new(UNLIMITED_AMOUNT, UNLIMITED_AMOUNT);
    for (id, _) in total.scalars() {
        all.set(id, UNLIMITED_SCALAR);
    }
    all
}
