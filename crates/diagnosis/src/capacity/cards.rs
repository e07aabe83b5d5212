//! Cards of the cluster: number of free cards, and number of stranded free cards. For example, a free GPU on a node
//! without free cpu is stranded.

use std::collections::BTreeMap;

use super::shape::{GangShape, listed_amount};
use crate::to_count;
use pumice_protocol::v1 as pb;

/// Number of cards of one kind.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardCapacity {
    /// Cards on all nodes.
    pub(super) total: u64,
    /// Cards that no task holds.
    pub(super) free: u64,
    /// Free cards whose node has no cpu, memory or pods left for such a pod, or takes no new pods.
    pub(super) stranded: u64,
    /// Free cards whose node has cpu and memory left, but fewer free cards than one such pod requests.
    pub(super) fragmented: u64,
}

/// Free and stranded cards of the kinds that the shape requests, by name.
pub(super) fn by_card(
    nodes: &[pb::NodeStatus],
    shape: &GangShape,
    wanted: &[String],
) -> BTreeMap<String, CardCapacity> {
    let mut cards: BTreeMap<String, CardCapacity> = BTreeMap::new();
    for node in nodes {
        let asked = node.cards.iter().filter(|card| shape.requests_resource(&card.resource));
        for card in asked.filter(|card| wanted.is_empty() || wanted.contains(&card.card)) {
            let kind = cards.entry(card.card.clone()).or_default();
            let used = whole_units(&card.resource, amount_value(&node.used, &card.resource)).ceil();
            let free = (card.count as f64 - used).max(0.0);
            let each = shape.request_per_pod(&card.resource).ceil().max(1.0);
            // Cards that the pods could hold which the node's other resources allow.
            let reach = (pods_beside_cards(node, shape) * each).min(free);
            kind.total += card.count;
            kind.free += to_count(free);
            kind.stranded += to_count(free - reach);
            kind.fragmented += to_count(reach % each);
        }
    }
    cards
}

/// Number of such pods that the node's resources other than cards allow.
fn pods_beside_cards(node: &pb::NodeStatus, shape: &GangShape) -> f64 {
    let record = node.node.clone().unwrap_or_default();
    if record.ready == Some(false) || record.unschedulable || !node.invalid.is_empty() {
        return 0.0;
    }
    let cards = |name: &str| node.cards.iter().any(|card| card.resource == name);
    let asked = shape.pod.requests.iter().flat_map(|list| list.items.keys());
    let asked = asked.map(String::as_str).filter(|name| *name != "pods" && !cards(name));
    let mut room = idle(node, &record, "pods");
    // A node without idle cpu or memory runs no pod, whatever the pod requests.
    for name in ["cpu", "memory"] {
        if idle(node, &record, name) <= 0.0 {
            return 0.0;
        }
    }
    for name in asked {
        let each = shape.request_per_pod(name);
        if each > 0.0 {
            room = room.min((idle(node, &record, name) / each).floor());
        }
    }
    room.max(0.0)
}

/// Idle amount of a resource, in whole units.
fn idle(node: &pb::NodeStatus, record: &pb::Node, name: &str) -> f64 {
    listed_amount(record.allocatable.as_ref(), name) + listed_amount(record.oversubscription.as_ref(), name)
        - whole_units(name, amount_value(&node.used, name))
}

/// Amount of a listing in whole units.
fn whole_units(name: &str, value: f64) -> f64 {
    if matches!(name, "memory" | "pods") {
        value
    } else {
        value / 1000.0
    }
}

fn amount_value(amounts: &[pb::Amount], name: &str) -> f64 {
    let found = amounts.iter().find(|amount| amount.resource == name);
    found.map_or(0.0, |amount| amount.value)
}
