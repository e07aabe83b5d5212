//! Free capacity of each node, to find the nodes that are nearest to fitting a task.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::report::{NearestNode, ResourceShortage};
use pumice_console::output;
use pumice_engine::model::MIN_AMOUNT;
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::{ResourceKind, amount, format_amount};
use pumice_engine::plugin::Measurement;
use pumice_protocol::v1 as pb;

/// Number of nearest nodes that are named.
const NEAREST: usize = 3;

/// Amounts by resource, in the engine's units.
pub(super) type AmountsByResource = BTreeMap<String, f64>;

/// Idle and allocatable amounts of a node.
#[derive(Debug)]
struct NodeIdleCapacity {
    node: String,
    allocatable: AmountsByResource,
    idle: AmountsByResource,
    /// Ready, schedulable and valid.
    schedulable: bool,
}

/// Idle capacity of all nodes.
#[derive(Debug, Default)]
pub(super) struct ClusterIdleCapacity(Vec<NodeIdleCapacity>);

impl ClusterIdleCapacity {
    /// Idle capacity now, or (`future`) once releasing tasks are gone.
    pub(super) fn of(nodes: &[pb::NodeStatus], future: bool) -> Self {
        ClusterIdleCapacity(
            nodes
                .iter()
                .filter_map(|status| node_idle_capacity(status, future))
                .collect(),
        )
    }

    /// Capacities of the nodes with these names, which are sorted.
    fn among(&self, names: &[String]) -> impl Iterator<Item = &NodeIdleCapacity> {
        self.0
            .iter()
            .filter(|capacity| names.binary_search(&capacity.node).is_ok())
    }

    /// Node among these with most of a resource idle, with that amount.
    pub(super) fn most_idle(&self, among: &[String], resource: &str) -> Option<(&str, f64)> {
        let idle = self
            .among(among)
            .map(|capacity| (capacity.node.as_str(), amount_of(&capacity.idle, resource)));
        // The first by name of several that have as much.
        idle.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// Schedulable nodes that lack something, nearest first: the fewest resources, then the least part of the request.
    pub(super) fn nearest(&self, requests: &AmountsByResource) -> Vec<NearestNode> {
        let lacking = self
            .0
            .iter()
            .filter(|capacity| capacity.schedulable)
            .map(|capacity| shortages_of(capacity, requests));
        let mut near: Vec<(usize, f64, NearestNode)> = lacking.filter(|(lacks, ..)| *lacks > 0).collect();
        near.sort_by(|a, b| {
            let parts = a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal);
            a.0.cmp(&b.0).then(parts).then_with(|| a.2.node.cmp(&b.2.node))
        });
        near.into_iter().take(NEAREST).map(|(.., near)| near).collect()
    }

    /// Number of nodes.
    pub(super) fn node_count(&self) -> u64 {
        self.0.len() as u64
    }

    /// True if a node has some of a resource.
    pub(super) fn has_resource(&self, name: &str) -> bool {
        self.0.iter().any(|node| amount_of(&node.allocatable, name) > 0.0)
    }

    /// Sum of a resource over all nodes, in units for people.
    pub(super) fn total(&self, name: &str) -> f64 {
        let sum = self.0.iter().map(|node| amount_of(&node.allocatable, name)).sum();
        Measurement::of_resource("", name, sum).value
    }

    /// Names of the resources of nodes, sorted.
    pub(super) fn resource_names(&self) -> Vec<String> {
        let names = self.0.iter().flat_map(|node| &node.allocatable);
        let some: BTreeSet<&String> = names
            .filter(|(_, amount)| **amount > 0.0)
            .map(|(name, _)| name)
            .collect();
        some.into_iter().cloned().collect()
    }

    /// Requests that exceed every node of the cluster, even an empty one, with the largest node's amount.
    pub(super) fn beyond_every_node(&self, requests: &AmountsByResource) -> Vec<ResourceShortage> {
        let beyond = requests.iter().filter_map(|(name, needed)| {
            let amounts = self.0.iter().map(|node| amount_of(&node.allocatable, name));
            let largest = amounts.fold(0.0, f64::max);
            (needed - largest >= MIN_AMOUNT).then(|| shortage(name, *needed, largest, largest))
        });
        beyond.collect()
    }
}

/// Requests of a task, including one pod.
pub(super) fn requests(task: &pb::Task) -> AmountsByResource {
    let mut requests = parse_amounts(task.requests.as_ref());
    requests.retain(|name, _| ResourceKind::of(name).counted_by_volcano());
    *requests.entry("pods".to_owned()).or_default() += 1.0;
    requests
}

/// True if a task requests no amount of any resource.
pub(super) fn asks_nothing(task: &pb::Task) -> bool {
    requests(task)
        .iter()
        .all(|(name, amount)| name == "pods" || *amount <= 0.0)
}

/// Sum of the requests of tasks, as quantities.
pub(super) fn sum_of_requests(tasks: &[&pb::Task]) -> pb::ResourceList {
    let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
    for (name, text) in tasks
        .iter()
        .filter_map(|task| task.requests.as_ref())
        .flat_map(|list| &list.items)
    {
        let read = Quantity::parse(text)
            .ok()
            .and_then(|quantity| amount(name, &quantity).ok());
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(read.unwrap_or(0).into());
    }
    let shown = |(name, sum): (&str, i128)| (name.to_owned(), format_amount(name, sum));
    pb::ResourceList {
        items: sums.into_iter().map(shown).collect(),
    }
}

fn node_idle_capacity(status: &pb::NodeStatus, future: bool) -> Option<NodeIdleCapacity> {
    let node = status.node.as_ref()?;
    let mut allocatable = parse_amounts(node.allocatable.as_ref());
    for (name, more) in parse_amounts(node.oversubscription.as_ref()) {
        *allocatable.entry(name).or_default() += more;
    }
    let mut idle = allocatable.clone();
    let mut add = |amounts: &[pb::Amount], sign: f64| {
        for amount in amounts {
            *idle.entry(amount.resource.clone()).or_default() += sign * amount.value;
        }
    };
    add(&status.used, -1.0);
    if future {
        add(&status.releasing, 1.0);
        add(&status.pipelined, -1.0);
    }
    Some(NodeIdleCapacity {
        node: node.name.clone(),
        allocatable,
        idle,
        schedulable: node.ready.unwrap_or(true) && !node.unschedulable && status.invalid.is_empty(),
    })
}

fn shortages_of(capacity: &NodeIdleCapacity, requests: &AmountsByResource) -> (usize, f64, NearestNode) {
    let mut worst: f64 = 0.0;
    let mut short = Vec::new();
    for (name, needed) in requests {
        let idle = amount_of(&capacity.idle, name);
        if needed - idle < MIN_AMOUNT {
            continue;
        }
        worst = worst.max((needed - idle) / needed);
        short.push(shortage(name, *needed, idle, amount_of(&capacity.allocatable, name)));
    }
    let node = capacity.node.clone();
    (short.len(), worst, NearestNode { node, shortages: short })
}

/// Amount of a resource as people write it, such as `1Gi`; one that cannot be read, as it is written.
pub(super) fn shown_amount(name: &str, written: &str) -> String {
    let quantity = Quantity::parse(written).ok();
    let Some(amount) = quantity.and_then(|quantity| amount(name, &quantity).ok()) else {
        return written.to_owned();
    };
    let measurement = Measurement::of_resource("", name, amount as f64);
    output::with_unit(measurement.value, measurement.unit)
}

/// Shortage of a resource, from amounts in the engine's units.
fn shortage(name: &str, requested: f64, idle: f64, allocatable: f64) -> ResourceShortage {
    let measurement = |amount| Measurement::of_resource("", name, amount);
    ResourceShortage {
        resource: name.to_owned(),
        unit: measurement(0.0).unit,
        requested: measurement(requested).value,
        idle: measurement(idle).value,
        allocatable: measurement(allocatable).value,
    }
}

fn amount_of(amounts: &AmountsByResource, name: &str) -> f64 {
    amounts.get(name).copied().unwrap_or(0.0)
}

/// Amounts of a list, in the engine's units.
pub(super) fn parse_amounts(list: Option<&pb::ResourceList>) -> AmountsByResource {
    let items = list.into_iter().flat_map(|list| &list.items);
    let read = |(name, text): (&String, &String)| {
        let quantity = Quantity::parse(text).ok()?;
        // Records that the server listed hold nothing that it could not read.
        Some((name.clone(), amount(name, &quantity).ok()? as f64))
    };
    items.filter_map(read).collect()
}
