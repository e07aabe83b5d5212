//! Amounts of one task under `compatibility: upstream` (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

use std::sync::Arc;

use crate::cards::CARD_NAME_ANNOTATION;
use crate::model::{ResourceId, TaskRecord, find_text};
use crate::plugins::capacity_card::{CARD_SEPARATOR, CardRequestError, ClusterCards, QuotaAmounts, requested_milli};

/// A task and the node that its pod names.
#[derive(Clone, Copy, Debug)]
pub struct TaskPod<'a> {
    /// Stored record of the task.
    pub task: &'a TaskRecord,
    /// spec.nodeName as the reference sees it; empty: none.
    pub node: &'a str,
}

impl<'a> TaskPod<'a> {
    /// The annotation of the task; empty: none.
    pub fn card_name(&self) -> &'a str {
        find_text(&self.task.annotations, CARD_NAME_ANNOTATION).unwrap_or_default()
    }
}

/// Amounts of a task. `unlimited`: without cpu and memory if it has cards.
///
/// # Errors
/// Its cards cannot be found out.
pub fn task_request(cards: &ClusterCards, unlimited: bool, pod: TaskPod<'_>) -> Result<QuotaAmounts, CardRequestError> {
    let mut counts = QuotaAmounts::default();
    if let Some((name, amount)) = task_cards(cards, pod)? {
        counts.set_card(&name, amount);
    }
    if !(unlimited && (counts.has_cards() || cards.has_card_resource(&pod.task.requests))) {
        counts.cpu = pod.task.requests.get(ResourceId::CPU).unwrap_or(0).into();
        counts.memory = pod.task.requests.get(ResourceId::MEMORY).unwrap_or(0).into();
    }
    Ok(counts)
}

fn task_cards(cards: &ClusterCards, pod: TaskPod<'_>) -> Result<Option<(Arc<str>, i128)>, CardRequestError> {
    let name = pod.card_name();
    if name.is_empty() {
        return Ok(None);
    }
    let Some((first, _)) = name.split_once(CARD_SEPARATOR) else {
        return single_card_amount(cards, pod, name).map(|amount| Some((Arc::from(name), amount)));
    };
    if pod.node.is_empty() {
        return single_card_amount(cards, pod, first).map(|amount| Some((Arc::from(name), amount)));
    }
    let Some(node) = cards.node_cards(pod.node) else {
        return Err(CardRequestError::UnknownNode {
            node: Arc::from(pod.node),
            task: Arc::clone(&pod.task.name),
        });
    };
    let found = name.split(CARD_SEPARATOR).filter(|card| node.cards.contains_key(*card));
    let mut found = found.filter_map(|card| Some((Arc::from(card), single_card_amount(cards, pod, card).ok()?)));
    match found.next() {
        Some(found) => Ok(Some(found)),
        None => Err(CardRequestError::NotOnNode {
            node: Arc::from(pod.node),
            task: Arc::clone(&pod.task.name),
            choice: name.to_owned(),
        }),
    }
}

fn single_card_amount(cards: &ClusterCards, pod: TaskPod<'_>, card: &str) -> Result<i128, CardRequestError> {
    let Some((id, resource)) = cards.resource(card) else {
        return Err(CardRequestError::UnknownCard { card: card.to_owned() });
    };
    requested_milli(pod.task, id).ok_or_else(|| CardRequestError::NotRequested {
        card: card.to_owned(),
        resource: Arc::clone(resource),
    })
}
