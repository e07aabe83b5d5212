//! One card, or several acceptable ones, against a queue's ceiling, as the reference compares them.

use crate::plugins::capacity_card::{CARD_SEPARATOR, QuotaAmounts};
use std::sync::Arc;

/// Object that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRequester {
    /// A job, to be enqueued.
    Job,
    /// A task, to be allocated.
    Task,
}

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardCheck {
    /// True if the request fits.
    pub fits: bool,
    /// Amount that would be held.
    pub total: i128,
    /// Amount that may be held.
    pub capability: i128,
}

/// Compares `wanted` thousandths of a card, which `total` already holds if it is a single one.
///
/// Several cards `A|B`: for a job the sums over all of them are compared; for a task one must fit, tried from left to
/// right on top of each other.
pub fn check_card(
    card: &str,
    wanted: i128,
    total: &QuotaAmounts,
    capability: &QuotaAmounts,
    asker: QuotaRequester,
) -> CardCheck {
    let alternatives = || card.split(CARD_SEPARATOR);
    let one = |total: i128, name: &str| {
        let capability = capability.card_or_zero(name);
        CardCheck {
            fits: wanted <= 0 || total <= capability,
            total,
            capability,
        }
    };
    if !card.contains(CARD_SEPARATOR) {
        return one(total.card_or_zero(card), card);
    }
    match asker {
        QuotaRequester::Job => {
            let sum = |counts: &QuotaAmounts| -> i128 { alternatives().map(|name| counts.card_or_zero(name)).sum() };
            let (total, capability) = (sum(total) + wanted, sum(capability));
            CardCheck {
                fits: wanted <= 0 || total <= capability,
                total,
                capability,
            }
        }
        QuotaRequester::Task => {
            let mut own = total.clone();
            let mut last = one(0, "");
            for name in alternatives() {
                own.add_card(&Arc::from(name), wanted);
                last = one(own.card_or_zero(name), name);
                if last.fits {
                    break;
                }
            }
            last
        }
    }
}
