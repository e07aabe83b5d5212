//! The cards of the cluster, kept up per changed node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::node_kinds::{NodeKinds, card_set};
use super::task_request::TaskRequest;
use crate::cards::{CARD_NAME_ANNOTATION, NodeCards};
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable, SortedTable, TaskRecord, find_text,
};
use crate::policy::Compatibility;

/// A node's share of the cluster's cards.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeCardCapacity {
    cards: NodeCards,
    cpu: i64,
    memory: i64,
}

held_bytes! { NodeCardCapacity { cards; cpu, memory } }

/// Resources that stand for a card, by name, each with the number of nodes that say so.
type CardResources = BTreeMap<Arc<str>, (ResourceId, u32)>;

/// Kinds of cards, the resources that stand for them, and the capacity of each node.
#[derive(Clone, Debug, Default)]
pub struct ClusterCards {
    nodes: SortedTable<Arc<NodeCardCapacity>>,
    node_kinds: NodeKinds,
    /// Resources that stand for each card.
    resources_by_card: BTreeMap<Arc<str>, CardResources>,
    /// For each resource that stands for a card, the cards it stands for, sorted.
    cards_by_resource: BTreeMap<ResourceId, Vec<Arc<str>>>,
    total: QuotaAmounts,
}

held_bytes! { ClusterCards { nodes, node_kinds, resources_by_card, cards_by_resource, total } }

impl ClusterCards {
    /// The cards of all nodes of a cluster state.
    pub fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut cards = Self::default();
        for (slot, entry) in cluster_state.nodes() {
            cards.put_node(slot, &entry.record, cluster_state.resources(), compatibility);
        }
        cards
    }

    /// Puts a node, at its slot, in the place of the one of its name; true if the resource of any card changed.
    pub fn put_node(
        &mut self,
        slot: NodeSlot,
        node: &NodeRecord,
        resources: &ResourceTable,
        compatibility: Compatibility,
    ) -> bool {
        let amount = |id| node.allocatable.get(id).unwrap_or(0);
        let member = NodeCardCapacity {
            cards: NodeCards::of(node, resources, compatibility),
            cpu: amount(ResourceId::CPU),
            memory: amount(ResourceId::MEMORY),
        };
        if self.nodes.get(&node.name).is_some_and(|old| **old == member) {
            return false;
        }
        self.node_kinds.set_node(slot, Some(card_set(&member.cards)));
        let mut changed = self.take_node(&node.name);
        self.total.add(&QuotaAmounts::new(member.cpu, member.memory));
        for (card, on_node) in &member.cards.cards {
            self.total.add_card(card, i128::from(on_node.cards) * 1000);
            let before = self.resource(card).map(|(id, _)| id);
            if let Some(name) = resources.shared_name(on_node.resource) {
                let stands = self.resources_by_card.entry(Arc::clone(card)).or_default();
                stands.entry(Arc::clone(name)).or_insert((on_node.resource, 0)).1 += 1;
            }
            changed |= self.update_resource_index(card, before);
        }
        self.nodes.insert(Arc::clone(&node.name), Arc::new(member));
        changed
    }

    /// Takes a node away; true if the resource of any card changed.
    pub fn remove_node(&mut self, slot: NodeSlot, node: &str) -> bool {
        self.node_kinds.set_node(slot, None);
        self.take_node(node)
    }

    fn take_node(&mut self, node: &str) -> bool {
        let Some(member) = self.nodes.remove(node) else {
            return false;
        };
        self.total.subtract(&QuotaAmounts::new(member.cpu, member.memory));
        let mut changed = false;
        for (card, on_node) in &member.cards.cards {
            self.total.add_card(card, i128::from(on_node.cards) * -1000);
            let before = self.resource(card).map(|(id, _)| id);
            if let Some(stands) = self.resources_by_card.get_mut(card) {
                for (id, nodes) in stands.values_mut() {
                    *nodes -= u32::from(*id == on_node.resource);
                }
                stands.retain(|_, (_, nodes)| *nodes > 0);
                if stands.is_empty() {
                    self.resources_by_card.remove(card);
                }
            }
            changed |= self.update_resource_index(card, before);
        }
        self.total.drop_zero_cards();
        changed
    }

    /// Brings the index by resource up to date for a card; true if its resource changed.
    fn update_resource_index(&mut self, card: &Arc<str>, before: Option<ResourceId>) -> bool {
        let after = self.resource(card).map(|(id, _)| id);
        if before == after {
            return false;
        }
        if let Some(cards) = before.and_then(|id| self.cards_by_resource.get_mut(&id)) {
            cards.retain(|other| other != card);
        }
        if let Some(id) = after {
            let cards = self.cards_by_resource.entry(id).or_default();
            if let Err(place) = cards.binary_search(card) {
                cards.insert(place, Arc::clone(card));
            }
        }
        self.cards_by_resource.retain(|_, cards| !cards.is_empty());
        true
    }

    /// The resource of a card. Nodes that disagree: the first by name.
    pub fn resource(&self, card: &str) -> Option<(ResourceId, &Arc<str>)> {
        let stands = self.resources_by_card.get(card)?;
        stands.first_key_value().map(|(name, (id, _))| (*id, name))
    }

    /// The cards of a choice, such as `A|B`, that some node has, with their resources.
    pub(super) fn of_choice<'n>(&self, choice: &'n str) -> impl Iterator<Item = (&'n str, ResourceId)> {
        let cards = choice.split(CARD_SEPARATOR);
        cards.filter_map(|card| self.resource(card).map(|(id, _)| (card, id)))
    }

    /// True if no node has any.
    pub(super) fn is_empty(&self) -> bool {
        self.resources_by_card.is_empty()
    }

    /// The cards that a resource stands for, sorted; none: it is no card's resource.
    pub fn cards_of_resource(&self, id: ResourceId) -> &[Arc<str>] {
        self.cards_by_resource.get(&id).map_or(&[], Vec::as_slice)
    }

    /// True if one of the resources is a card.
    pub fn has_card_resource(&self, amounts: &ResourceAmounts) -> bool {
        amounts.iter().any(|(id, _)| !self.cards_of_resource(id).is_empty())
    }

    /// Amounts that a task holds on any node; `None`: that depends on the node, for it uses cards.
    pub(super) fn node_independent_holding(&self, task: &TaskRecord) -> Option<QuotaAmounts> {
        let named = find_text(&task.annotations, CARD_NAME_ANNOTATION).is_some_and(|name| !name.is_empty());
        let uses = |id: ResourceId| !self.cards_of_resource(id).is_empty() || self.node_kinds.has_resource(id);
        if named || TaskRequest::from(task).requested_resources().any(uses) {
            return None;
        }
        let amount = |id| task.requests.get(id).unwrap_or(0);
        Some(QuotaAmounts::new(amount(ResourceId::CPU), amount(ResourceId::MEMORY)))
    }

    /// Capacity of a node by kind; `None`: the node is unknown.
    pub fn node_cards(&self, node: &str) -> Option<&NodeCards> {
        self.nodes.get(node).map(|member| &member.cards)
    }

    /// All nodes with their cards, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &NodeCards)> {
        self.nodes.iter().map(|(name, member)| (name, &member.cards))
    }

    /// Nodes by the kinds of cards that they have.
    pub(super) fn node_kinds(&self) -> &NodeKinds {
        &self.node_kinds
    }

    /// Total of all nodes: cpu, memory and cards.
    pub fn total(&self) -> &QuotaAmounts {
        &self.total
    }
}
