//! Scores of nodes at the time when Filter offered them. kube-scheduler requests the scores right after Filter.

use std::collections::VecDeque;
use std::sync::Arc;

use pumice_engine::model::NodeSlot;
use pumice_engine::short_lock::ShortLock;

/// Offers that are kept, the newest: a scheduler asks about one pod after the other.
const MAX_OFFERS: usize = 64;

/// Offer of nodes to one pod.
#[derive(Debug)]
pub(super) struct Offer {
    /// Pod, by name and incarnation, and policy.
    pub(super) key: OfferKey,
    /// Scores of the nodes.
    pub(super) scores: SlotScores,
}

/// Scores of nodes as kube-scheduler takes them, by slot.
#[derive(Debug, Default)]
pub(super) struct SlotScores {
    /// Generation of the node table that the slots belong to.
    pub(super) generation: u64,
    /// Score of the node of each slot; below 0: it has none.
    pub(super) by_slot: Vec<i64>,
}

impl SlotScores {
    /// Score of the node of a slot; `None`: it has none.
    pub(super) fn of(&self, slot: NodeSlot) -> Option<i64> {
        self.by_slot.get(slot as usize).copied().filter(|score| *score >= 0)
    }
}

/// Pod and policy of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferKey {
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) policy: String,
}

/// The newest offers.
#[derive(Debug, Default)]
pub(super) struct OfferTable(ShortLock<VecDeque<Arc<Offer>>>);

impl OfferTable {
    /// Stores an offer and replaces the previous offer to the same pod.
    pub(super) fn put(&self, offer: Offer) {
        let offer = Arc::new(offer);
        let gone = self.0.with(|offers| {
            let at = offers.iter().position(|other| other.key == offer.key);
            let before = at.and_then(|at| offers.remove(at));
            offers.push_back(offer);
            let oldest = if offers.len() > MAX_OFFERS {
                offers.pop_front()
            } else {
                None
            };
            (before, oldest)
        });
        // Freed without the lock.
        drop(gone);
    }

    /// The offer to a pod.
    pub(super) fn get(&self, key: &OfferKey) -> Option<Arc<Offer>> {
        self.0
            .with(|offers| offers.iter().rev().find(|offer| offer.key == *key).cloned())
    }
}
