//! Status of tasks in the accounts of a cycle: what they hold, and whether they wait.

use std::sync::Arc;

use super::task_need::{CardDemand, TaskNeed};
use crate::held_bytes::held_bytes;
use crate::plugins::capacity_card::QuotaAmounts;

/// Status of a task in the accounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HoldingStatus {
    /// Amounts that the task holds; `None`: it does not count.
    pub(super) holds: Option<Arc<QuotaAmounts>>,
    /// True if the task waits for what it needs.
    pub(super) waits: bool,
}

held_bytes! { HoldingStatus { holds; waits } }

impl HoldingStatus {
    /// True if what a job needs at least changes with this status of a task that needs this: with a request that cannot be
    /// evaluated, of sizes that count, or with cards that it does not name, or without one that it names.
    pub(super) fn changes_minimum(&self, need: &TaskNeed, mixed: bool) -> bool {
        let demands = &need.demands;
        if need.request_error.is_some() || (mixed && demands.iter().any(CardDemand::is_choice)) {
            return true;
        }
        let Some(held) = &self.holds else { return false };
        let names = |card: &str| {
            let mut all = demands.iter().flat_map(|demand| &demand.alternatives);
            all.any(|(own, _)| **own == *card)
        };
        let holds_some = |card: &str| held.card(card).is_some_and(|amount| amount > 0);
        let has_other = held.cards().any(|(card, amount)| amount > 0 && !names(card));
        let mut lacks = demands.iter();
        has_other || lacks.any(|demand| !demand.alternatives.iter().any(|(card, _)| holds_some(card)))
    }
}
