//! Amounts that a queue holds, and its share of what it deserves.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::corrected::CardClaims;
use super::queue_limits::QueueLimits;
use crate::held_bytes::held_bytes;

/// A queue's account. A clone shares the limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueAccount {
    /// Limits of what the queue may hold.
    pub limits: Arc<QueueLimits>,
    /// Asked for when the session opened: held and pending.
    pub request: Arc<QuotaAmounts>,
    /// Held.
    pub allocated: QuotaAmounts,
    /// Admitted, not yet held.
    pub inqueue: QuotaAmounts,
    /// Held above the minimum of its jobs.
    pub elastic: QuotaAmounts,
    /// Under `corrected`: claims of admitted jobs on choices of cards that are not made yet.
    pub(super) claims: CardClaims,
}

held_bytes! { QueueAccount { limits, request, allocated, inqueue, elastic, claims } }

impl QueueAccount {
    /// The largest allocated/deserved over what is deserved at all.
    pub fn share(&self) -> f64 {
        self.ratios().map(|(_, ratio)| ratio).fold(0.0, f64::max)
    }

    /// The share with the resource or card that sets it, the first of equal ones; an empty name: the share is 0.
    pub(super) fn dominant_share(&self) -> (f64, Arc<str>) {
        let larger = |largest: (f64, _), (name, ratio)| if ratio > largest.0 { (ratio, name) } else { largest };
        let (share, name) = self.ratios().fold((0.0, ""), larger);
        (share, Arc::from(name))
    }

    /// How often an amount of cpu and memory fits beside what is held.
    pub(super) fn plain_headroom(&self, wanted: &QuotaAmounts) -> u64 {
        let capability = &self.limits.capability;
        let room = |wanted: i128, room: i128| (wanted > 0).then(|| fit_count(room, wanted));
        let cpu = room(wanted.cpu, capability.cpu - self.allocated.cpu);
        let memory = room(wanted.memory, capability.memory - self.allocated.memory);
        cpu.into_iter().chain(memory).min().unwrap_or(u64::MAX)
    }

    fn ratios(&self) -> impl Iterator<Item = (&str, f64)> {
        let deserved = &self.limits.deserved;
        let plain = [
            ("cpu", self.allocated.cpu, deserved.cpu),
            ("memory", self.allocated.memory, deserved.memory),
        ];
        let cards = deserved
            .cards()
            .map(|(name, deserved)| (&**name, self.allocated.card_or_zero(name), deserved));
        plain
            .into_iter()
            .chain(cards)
            .filter(|(_, _, deserved)| *deserved > 0)
            .map(|(name, allocated, deserved)| (name, allocated as f64 / deserved as f64))
    }
}

/// How often an amount above 0 fits.
pub(super) fn fit_count(room: i128, wanted: i128) -> u64 {
    u64::try_from(room.max(0) / wanted.max(1)).unwrap_or(u64::MAX)
}
