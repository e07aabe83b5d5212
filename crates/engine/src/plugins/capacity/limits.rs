//! Limits and deserved amounts of queues, flat and down the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::queue_accounts::{
    QueueBounds, capability_limit, guarantee_sum, limits, optional_vector, unguaranteed,
};
use super::tree::{QuotaTree, ROOT};
use crate::model::{ClusterState, QueueRecord, ResourceAmounts, ResourceVector, UNLIMITED_AMOUNT, UNLIMITED_SCALAR};
use crate::policy::Compatibility;

/// Limits of a queue, and the amounts that it deserves.
pub(super) type BoundsAndDeserved = (QueueBounds, ResourceVector);

/// Limits of all queues of a flat configuration: the cluster without the guarantees of others.
pub(super) fn flat_bounds(
    cluster_state: &ClusterState,
    total: &ResourceVector,
    compatibility: Compatibility,
) -> BTreeMap<Arc<str>, BoundsAndDeserved> {
    let guaranteed = guarantee_sum(cluster_state, compatibility);
    let free = unguaranteed(total, &ResourceVector::from(&guaranteed), compatibility);
    let queues = cluster_state.queues().iter().map(|(name, stored)| {
        let mut bounds = QueueBounds::of(&stored.record, compatibility);
        bounds.real_capability = free.clone();
        bounds.real_capability.add(&bounds.guarantee);
        bounds.capability = stored
            .record
            .capability
            .as_ref()
            .and_then(|own| capability_limit(own, compatibility));
        if let Some(capability) = &bounds.capability {
            bounds.real_capability.lower_to_limit(capability);
        }
        let mut deserved = optional_vector(stored.record.deserved.as_ref(), compatibility);
        deserved.lower_to_limit(&bounds.real_capability);
        let deserved = deserved.larger_of(&bounds.guarantee);
        (Arc::clone(name), (bounds, deserved))
    });
    queues.collect()
}

/// Limits of all queues of a tree. A queue that does not hang below the root may hold nothing.
pub(super) fn tree_bounds(
    cluster_state: &ClusterState,
    total: &ResourceVector,
    tree: &QuotaTree,
    compatibility: Compatibility,
) -> BTreeMap<Arc<str>, BoundsAndDeserved> {
    let mut all: BTreeMap<Arc<str>, BoundsAndDeserved> = BTreeMap::new();
    for (name, stored) in cluster_state.queues().iter() {
        all.insert(Arc::clone(name), written_bounds(&stored.record, compatibility));
    }
    let root: Arc<str> = Arc::from(ROOT);
    let unlimited = unlimited(total);
    let (mut bounds, _) = all.get(&root).cloned().unwrap_or_default();
    let written = |name: &str| cluster_state.queues().get(name)?.record.capability.as_ref();
    let is_upstream = compatibility == Compatibility::Upstream;
    let mut capability = bounds.capability.take().filter(|own| match written(&root) {
        Some(written) if !is_upstream => !written.is_empty(),
        _ => !own.is_empty(),
    });
    if let Some(capability) = capability.as_mut().filter(|_| !is_upstream) {
        inherit(capability, written(&root), &unlimited, compatibility);
    }
    let capability = capability.unwrap_or(unlimited);
    bounds.real_capability = capability.clone();
    bounds.capability = Some(capability);
    let mut open = vec![(Arc::clone(&root), bounds)];
    while let Some((name, mut parent)) = open.pop() {
        let children = tree.children.get(&name).map_or(&[][..], Vec::as_slice);
        let (mut guaranteed, mut deserved_sum) = (ResourceVector::default(), ResourceVector::default());
        let above = parent.capability.clone().unwrap_or_default();
        for child in children {
            let Some((bounds, deserved)) = all.get_mut(child) else {
                continue;
            };
            *deserved = deserved.larger_of(&bounds.guarantee);
            let capability = bounds.capability.get_or_insert_default();
            inherit(capability, written(child), &above, compatibility);
            guaranteed.add(&bounds.guarantee);
        }
        if name == root {
            parent.guarantee = guaranteed.clone();
        }
        let free = unguaranteed(&parent.real_capability, &guaranteed, compatibility);
        for child in children {
            let Some((bounds, deserved)) = all.get_mut(child) else {
                continue;
            };
            bounds.real_capability = free.clone();
            bounds.real_capability.add(&bounds.guarantee);
            if let Some(capability) = &bounds.capability {
                bounds.real_capability.lower_to_limit(capability);
            }
            if !is_upstream {
                // A queue deserves no more than it may hold, as without a tree.
                deserved.lower_to_limit(&bounds.real_capability);
                *deserved = deserved.larger_of(&bounds.guarantee);
            }
            deserved_sum.add(deserved);
            open.push((Arc::clone(child), bounds.clone()));
        }
        if name == root
            && let Some(own) = all.get_mut(&root)
        {
            *own = (parent, deserved_sum);
        }
    }
    all
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

/// Limit of nothing, for every resource of the cluster.
fn unlimited(total: &ResourceVector) -> ResourceVector {
    let mut all = ResourceVector::new(UNLIMITED_AMOUNT, UNLIMITED_AMOUNT);
    for (id, _) in total.scalars() {
        all.set(id, UNLIMITED_SCALAR);
    }
    all
}
