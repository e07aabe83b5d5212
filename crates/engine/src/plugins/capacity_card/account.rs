//! Amounts that a queue holds, and its share of what it deserves.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::limits::QueueLimits;
use super::pieces::Pieces;
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
    /// Pieces of choices that admitted jobs reserve.
    pub(super) pieces: Pieces,
    /// Number of its jobs; under `upstream` a queue without any has no account.
    pub job_count: u32,
}

held_bytes! { QueueAccount { limits, request, allocated, inqueue, elastic, pieces; job_count } }

/// A share, and what sets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueShare {
    /// The largest allocated/deserved.
    pub value: f64,
    /// Resource or card that decides the share; empty: the share is 0.
    pub dominant: Arc<str>,
}

impl QueueAccount {
    /// The largest allocated/deserved over what is deserved at all.
    pub fn share(&self) -> f64 {
        self.ratios().map(|(_, ratio)| ratio).fold(0.0, f64::max)
    }

    /// The share with the resource or card that sets it, the first of equal ones.
    pub fn dominant_share(&self) -> QueueShare {
        let mut share = QueueShare::default();
        for (name, ratio) in self.ratios() {
            if ratio > share.value {
                share = QueueShare {
                    value: ratio,
                    dominant: Arc::from(name),
                };
            }
        }
        share
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
