//! What one task counts under `compatibility: upstream` (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

use std::sync::Arc;

use super::annotations::{NAME, OR};
use super::cards::{Cards, asked};
use super::counts::Counts;
use crate::engine::model::{ResourceId, TaskRecord, text};

/// Why it is not known what a task counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No node has the card.
    #[error("no resource name found for card <{card}>")]
    UnknownCard {
        /// The card.
        card: String,
    },
    /// The task does not ask for the card's resource.
    #[error("no resource <{resource}> defined in requests/limits for card <{card}>")]
    NotAsked {
        /// The card.
        card: String,
        /// Its resource.
        resource: Arc<str>,
    },
    /// The node that the task is on is not there.
    #[error("failed to get node <{node}> for task <{task}>: node \"{node}\" not found")]
    UnknownNode {
        /// The node.
        node: Arc<str>,
        /// The task.
        task: Arc<str>,
    },
    /// The node that the task is on has none of the acceptable cards.
    #[error("no valid card found on node <{node}> for task <{task}> with multi-card name <{choice}>")]
    NotOnNode {
        /// The node.
        node: Arc<str>,
        /// The task.
        task: Arc<str>,
        /// The acceptable cards.
        choice: String,
    },
}

/// A task and the node that its pod names.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// The task.
    pub task: &'a TaskRecord,
    /// spec.nodeName as the reference sees it; empty: none.
    pub node: &'a str,
}

impl<'a> Pod<'a> {
    /// The annotation of the task; empty: none.
    pub fn card_name(&self) -> &'a str {
        text(&self.task.annotations, NAME).unwrap_or_default()
    }
}

/// What a task counts. `unlimited`: without cpu and memory if it has cards.
///
/// # Errors
/// Its cards cannot be found out.
pub fn task_request(cards: &Cards, unlimited: bool, pod: Pod<'_>) -> Result<Counts, RequestError> {
    let mut counts = Counts::default();
    if let Some((name, amount)) = task_cards(cards, pod)? {
        counts.set_card(&name, amount);
    }
    if !(unlimited && (counts.has_cards() || cards.any_in(&pod.task.requests))) {
        counts.cpu = pod.task.requests.get(ResourceId::CPU).unwrap_or(0).into();
        counts.memory = pod.task.requests.get(ResourceId::MEMORY).unwrap_or(0).into();
    }
    Ok(counts)
}

fn task_cards(cards: &Cards, pod: Pod<'_>) -> Result<Option<(Arc<str>, i128)>, RequestError> {
    let name = pod.card_name();
    if name.is_empty() {
        return Ok(None);
    }
    let Some((first, _)) = name.split_once(OR) else {
        return single(cards, pod, name).map(|amount| Some((Arc::from(name), amount)));
    };
    if pod.node.is_empty() {
        return single(cards, pod, first).map(|amount| Some((Arc::from(name), amount)));
    }
    let Some(node) = cards.on_node(pod.node) else {
        return Err(RequestError::UnknownNode {
            node: Arc::from(pod.node),
            task: Arc::clone(&pod.task.name),
        });
    };
    let found = name.split(OR).filter(|card| node.cards.contains_key(*card));
    let mut found = found.filter_map(|card| Some((Arc::from(card), single(cards, pod, card).ok()?)));
    match found.next() {
        Some(found) => Ok(Some(found)),
        None => Err(RequestError::NotOnNode {
            node: Arc::from(pod.node),
            task: Arc::clone(&pod.task.name),
            choice: name.to_owned(),
        }),
    }
}

fn single(cards: &Cards, pod: Pod<'_>, card: &str) -> Result<i128, RequestError> {
    let Some((id, resource)) = cards.resource(card) else {
        return Err(RequestError::UnknownCard { card: card.to_owned() });
    };
    asked(pod.task, id).ok_or_else(|| RequestError::NotAsked {
        card: card.to_owned(),
        resource: Arc::clone(resource),
    })
}
