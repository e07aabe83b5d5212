//! One card, or several acceptable ones, against a queue's ceiling, as the reference compares them.

use crate::plugins::capacity_card::{CARD_SEPARATOR, QuotaAmounts, QuotaComparison};
use std::sync::Arc;

/// Object that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRequester {
    /// A job, to be enqueued.
    Job,
    /// A task, to be allocated.
    Task,
}

/// Comparison of `wanted` thousandths of a card, which `total` already holds if it is a single one, with what may be held; see
/// [`QuotaComparison::rejects`].
///
/// Several cards `A|B`: for a job the sums over all of them are compared; for a task one must fit, tried from left to
/// right on top of each other.
pub fn check_card(
    card: &str,
    wanted: i128,
    total: &QuotaAmounts,
    capability: &QuotaAmounts,
    asker: QuotaRequester,
) -> QuotaComparison {
    let alternatives = || card.split(CARD_SEPARATOR);
    let compared = |total, capability| QuotaComparison {
        requested: wanted,
        total,
        capability,
    };
    if !card.contains(CARD_SEPARATOR) {
        return compared(total.card_or_zero(card), capability.card_or_zero(card));
    }
    match asker {
        QuotaRequester::Job => {
            let sum = |counts: &QuotaAmounts| -> i128 { alternatives().map(|name| counts.card_or_zero(name)).sum() };
            compared(sum(total) + wanted, sum(capability))
        }
        QuotaRequester::Task => {
            let mut own = total.clone();
            let mut last = compared(0, 0);
            for name in alternatives() {
                own.add_card(&Arc::from(name), wanted);
                last = compared(own.card_or_zero(name), capability.card_or_zero(name));
                if !last.rejects() {
                    break;
                }
            }
            last
        }
    }
}
