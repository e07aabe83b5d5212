//! Accounts of queues and jobs, as listings show them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::account::QueueAccount;
use super::amounts::QuotaAmounts;
use super::metrics;
use super::state::CapacityState;
use crate::cards::CardOnNode;
use crate::model::{ClusterState, JobRecord, Reservation};
use crate::plugin::{AccountAmounts, NodeCard, PluginAccount, PluginAccounts, QueueGauge};

static CPU: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("cpu"));
static MEMORY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("memory"));

impl PluginAccounts for CapacityState {
    fn job_account(&self, cluster_state: &ClusterState, job: &JobRecord) -> Option<PluginAccount> {
        let summary = self.job_quota_summary(cluster_state, job);
        Some(PluginAccount {
            allocated: all_amounts(&summary.allocated),
            request: all_amounts(&summary.card_request),
            inqueue: all_amounts(&summary.inqueue),
            elastic: all_amounts(&summary.elastic),
            min_resources: all_amounts(&summary.min_resources),
            ..PluginAccount::default()
        })
    }

    fn queue_account(&self, queue: &str) -> Option<PluginAccount> {
        let account = self.account(queue)?;
        let (limits, share) = (&account.limits, account.dominant_share());
        let mut capability = amounts(&limits.capability, limits.cpu_limited, limits.memory_limited);
        if self.limits_own_cards(queue) {
            capability.extend(unnamed_cards(account));
        }
        Some(PluginAccount {
            allocated: all_amounts(&account.allocated),
            request: all_amounts(&account.request),
            inqueue: all_amounts(&account.inqueue),
            elastic: all_amounts(&account.elastic),
            deserved: all_amounts(&limits.deserved),
            guarantee: all_amounts(&limits.guarantee),
            capability,
            real_capability: all_amounts(&limits.real_capability),
            min_resources: Vec::new(),
            share: share.value,
            dominant_resource: share.dominant,
        })
    }

    fn queue_gauges(&self, cluster_state: &ClusterState) -> Vec<QueueGauge> {
        let mut gauges = metrics::card_gauges(self, cluster_state);
        gauges.extend(metrics::queue_gauges(self, cluster_state));
        gauges
    }

    fn remaining_reservation(&self, reservation: &Reservation) -> Option<AccountAmounts> {
        let mut left = all_amounts(&self.reservation_rest(reservation));
        left.retain(|(_, amount)| *amount != 0.0);
        Some(left)
    }

    fn node_cards(&self, node: &str) -> Vec<NodeCard> {
        let found = self.cards().node_cards(node);
        let cards = found.into_iter().flat_map(|found| &found.cards);
        let card = |(card, on_node): (&Arc<str>, &CardOnNode)| NodeCard {
            card: Arc::clone(card),
            resource: on_node.resource,
            count: u64::try_from(on_node.cards).unwrap_or(0),
        };
        cards.map(card).collect()
    }
}

/// Capability of the cards that a queue's account names and its quota does not: 0. A choice of cards has none of its own.
fn unnamed_cards(account: &QueueAccount) -> AccountAmounts {
    let sums = [&account.allocated, &*account.request, &account.inqueue];
    let named = sums.into_iter().flat_map(QuotaAmounts::cards).map(|(name, _)| name);
    let unnamed = named.filter(|name| !name.contains('|') && account.limits.capability.card(name).is_none());
    let unnamed: BTreeSet<&Arc<str>> = unnamed.collect();
    unnamed.into_iter().map(|name| (Arc::clone(name), 0.0)).collect()
}

/// Amounts of cpu and memory where there is a limit, and of cards.
fn amounts(counts: &QuotaAmounts, with_cpu: bool, with_memory: bool) -> AccountAmounts {
    let plain = [(&CPU, counts.cpu, with_cpu), (&MEMORY, counts.memory, with_memory)];
    let plain = plain.into_iter().filter(|(_, _, shown)| *shown);
    let plain = plain.map(|(name, value, _)| (Arc::clone(name), value as f64));
    let cards = counts.cards().map(|(name, value)| (Arc::clone(name), value as f64));
    plain.chain(cards).collect()
}

fn all_amounts(counts: &QuotaAmounts) -> AccountAmounts {
    amounts(counts, true, true)
}
