//! Quotas that cannot hold: a queue has more than it may hold, children have more than their parent, or all queues have more than
//! the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tree::ROOT;
use crate::model::resource_name::format_amount;
use crate::model::{ClusterState, ErrorCode, Problem, QueueRecord, ResourceAmounts, ResourceId};

/// A list of amounts of queues, with the name of its field.
type QuotaField = (&'static str, fn(&QueueRecord) -> Option<&ResourceAmounts>);

/// Amounts that a queue must be able to hold.
const FIELDS: [QuotaField; 2] = [
    ("guarantee", |queue| queue.guarantee.as_ref()),
    ("deserved", |queue| queue.deserved.as_ref()),
];

/// Quotas that cannot hold, by the queue that has to be changed.
pub(super) fn impossible_quotas(cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
    let queues: Vec<&QueueRecord> = cluster_state
        .queues()
        .iter()
        .map(|(_, stored)| &stored.record)
        .collect();
    let mut found = Vec::new();
    for (field, amounts) in FIELDS {
        for queue in &queues {
            let limit = queue.capability.as_ref();
            let limit = |id| Some(i128::from(limit?.get(id)?));
            let own = amounts(queue).into_iter().flat_map(ResourceAmounts::iter);
            for (id, amount) in own.map(|(id, amount)| (id, i128::from(amount))) {
                if let Some(limit) = limit(id).filter(|limit| amount > *limit) {
                    let over = Excess { id, amount, limit };
                    let (amount, limit) = over.texts(cluster_state);
                    let message = format!(
                        "the `{field}` of queue `{}` is {amount}, and its `capability` is {limit}: lower the one or raise the other",
                        queue.name
                    );
                    found.push(problem(queue, field, message));
                }
            }
        }
        for siblings in siblings(&queues) {
            found.extend(siblings.excess(cluster_state, field, amounts));
        }
    }
    found
}

/// An amount above its limit, in the engine's units.
struct Excess {
    id: ResourceId,
    amount: i128,
    limit: i128,
}

impl Excess {
    fn texts(&self, cluster_state: &ClusterState) -> (String, String) {
        let name = cluster_state.resources().name(self.id);
        let text = |amount| format!("{} of {name}", format_amount(name, amount));
        (text(self.amount), text(self.limit))
    }
}

/// Queues with one parent.
struct SiblingQueues<'q> {
    /// Record of the parent; `None`: the root, which has no record.
    parent: Option<&'q QueueRecord>,
    queues: Vec<&'q QueueRecord>,
}

/// All queues but the root, by their parents. A parent that does not exist is the root.
fn siblings<'q>(queues: &[&'q QueueRecord]) -> Vec<SiblingQueues<'q>> {
    let by_name: BTreeMap<&str, &QueueRecord> = queues.iter().map(|queue| (&*queue.name, *queue)).collect();
    let mut siblings: BTreeMap<&str, SiblingQueues<'q>> = BTreeMap::new();
    for queue in queues.iter().filter(|queue| &*queue.name != ROOT) {
        let parent = by_name.get(&*queue.parent).or_else(|| by_name.get(ROOT));
        let of_parent = siblings.entry(parent.map_or(ROOT, |parent| &*parent.name));
        let of_parent = of_parent.or_insert_with(|| SiblingQueues {
            parent: parent.copied(),
            queues: Vec::new(),
        });
        of_parent.queues.push(queue);
    }
    siblings.into_values().collect()
}

impl SiblingQueues<'_> {
    /// Problems of sums above what the parent has. The root has no amounts of its own: its capability limits the sum, and
    /// the cluster limits guarantees. What queues deserve may be more than the cluster has, because nodes come and go.
    fn excess(
        &self,
        cluster_state: &ClusterState,
        field: &str,
        amounts: fn(&QueueRecord) -> Option<&ResourceAmounts>,
    ) -> Vec<(Arc<str>, Problem)> {
        let mut sums: BTreeMap<ResourceId, (i128, &QueueRecord)> = BTreeMap::new();
        for queue in &self.queues {
            for (id, amount) in amounts(queue).into_iter().flat_map(ResourceAmounts::iter) {
                let (sum, largest) = sums.entry(id).or_insert((0, queue));
                *sum += i128::from(amount);
                if amounts(largest).and_then(|own| own.get(id)) < Some(amount) {
                    *largest = queue;
                }
            }
        }
        let mut problems = Vec::new();
        for (id, (amount, largest)) in sums {
            let inner = self.parent.filter(|parent| &*parent.name != ROOT);
            let of_inner = inner.and_then(|inner| amounts(inner)?.get(id));
            let written = of_inner.or_else(|| self.parent?.capability.as_ref()?.get(id));
            let nodes = (inner.is_none() && field == "guarantee").then(|| cluster_total(cluster_state, id));
            let (written, nodes) = (written.map(i128::from), nodes.flatten());
            let (holder, limit) = match self.parent {
                Some(parent) if nodes.is_none_or(|nodes| written.is_some_and(|written| written < nodes)) => {
                    (format!("queue `{}`", parent.name), written)
                }
                _ => ("the cluster".to_owned(), nodes),
            };
            let owners = inner.map_or("all queues".to_owned(), |_| format!("all queues below {holder}"));
            if let Some(limit) = limit.filter(|limit| amount > *limit) {
                let (amount, limit) = Excess { id, amount, limit }.texts(cluster_state);
                let message = format!(
                    "the `{field}` of {owners} is {amount} together, and {holder} has {limit}: lower it, for example for queue \
                     `{}`, which has the most",
                    largest.name
                );
                problems.push(problem(largest, field, message));
            }
        }
        problems
    }
}

/// Amount of a resource on all nodes; `None`: there is no node.
fn cluster_total(cluster_state: &ClusterState, id: ResourceId) -> Option<i128> {
    let nodes = cluster_state.nodes().map(|(_, entry)| &entry.record.allocatable);
    nodes
        .map(|allocatable| i128::from(allocatable.get(id).unwrap_or_default()))
        .reduce(|sum, amount| sum + amount)
}

fn problem(queue: &QueueRecord, field: &str, message: String) -> (Arc<str>, Problem) {
    let field = format!("queues[{}].{field}", queue.name);
    let problem = Problem::new(ErrorCode::QuotaImpossible, field, message);
    (Arc::clone(&queue.name), problem)
}
