//! The gauges of queues, as the reference sets them, and those of cards under the names that its design gives them.

use std::sync::Arc;

use super::super::queue_accounts::{amount_help, gauge, help, push_account, push_amounts};
use super::account_listing::{all_amounts, queue_account};
use super::amounts::QuotaAmounts;
use super::card_accounts::CardAccounts;
use super::queue_limits::CardQuota;
use crate::model::{ClusterState, QueueRecord};
use crate::plugin::{PluginAccount, QueueGauge};

const CARDS: [&str; 4] = [
    "volcano_queue_card_deserved",
    "volcano_queue_card_allocated",
    "volcano_queue_card_request",
    "volcano_queue_card_capacity",
];

/// All gauges, by queue.
pub(super) fn queue_gauges(state: &CardAccounts, cluster_state: &ClusterState) -> Vec<QueueGauge> {
    let mut gauges = Vec::new();
    for (name, queue) in cluster_state.queues().iter() {
        let Some(account) = state.account(name) else {
            push_amounts(&mut gauges, name, &empty_account(state, &queue.record), card_help);
            continue;
        };
        let shown = PluginAccount {
            capability: all_amounts(&account.limits.capability),
            ..queue_account(account, false)
        };
        push_account(&mut gauges, name, &shown, card_help);
    }
    gauges
}

/// Whole cards of every queue, under the names of the plugin's design: deserved, held, asked for (held or pending), and
/// the quota.
pub(super) fn card_gauges(state: &CardAccounts, cluster_state: &ClusterState) -> Vec<QueueGauge> {
    let mut gauges = Vec::new();
    for (name, queue) in cluster_state.queues().iter() {
        let own;
        let account = if let Some(account) = state.account(name) {
            &**account
        } else {
            own = state.empty_account(&queue.record);
            &own
        };
        let limits = &account.limits;
        let amounts = [
            &limits.deserved,
            &account.allocated,
            &account.request,
            &limits.capability,
        ];
        for (metric, amounts) in CARDS.into_iter().zip(amounts) {
            gauges.extend(amounts.cards().map(|(card, milli)| {
                let label = Some(("card", Arc::clone(card)));
                gauge(metric, name, label, milli as f64 / 1000.0, card_help)
            }));
        }
    }
    gauges
}

/// Account of a queue without jobs. A capability that is not said has no gauges.
fn empty_account(state: &CardAccounts, queue: &QueueRecord) -> PluginAccount {
    let quota = CardQuota::of(queue, state.compatibility);
    let deserved = queue.deserved.as_ref();
    let limits = state.limits(queue);
    // The reference adds the own guarantee, quota included, only if the guarantee is said.
    let mut real = state.cards().total().saturating_sub(state.total_guaranteed());
    if queue.guarantee.is_some() {
        real.add(&limits.guarantee);
    }
    let mut capability = Vec::new();
    if queue.capability.is_some() {
        capability = all_amounts(&limits.capability);
        real = min_with_ceiling(&real, &limits.capability);
    }
    let none = all_amounts(&QuotaAmounts::default());
    PluginAccount {
        deserved: deserved.map_or_else(
            || none.clone(),
            |deserved| all_amounts(&quota.with_cpu_memory(Some(deserved))),
        ),
        allocated: none.clone(),
        request: none,
        capability,
        real_capability: all_amounts(&real),
        ..PluginAccount::default()
    }
}

/// The smaller of both; cards that the ceiling does not name have no ceiling.
fn min_with_ceiling(counts: &QuotaAmounts, ceiling: &QuotaAmounts) -> QuotaAmounts {
    let mut least = QuotaAmounts::new(counts.cpu.min(ceiling.cpu), counts.memory.min(ceiling.memory));
    for (name, amount) in counts.cards() {
        least.set_card(name, amount.min(ceiling.card(name).unwrap_or(amount)));
    }
    least
}

/// Sentence about a metric, with its unit.
fn card_help(name: &str) -> String {
    if CARDS.contains(&name) {
        amount_help(name, "cards")
    } else {
        help(name, "thousandths of cards")
    }
}
