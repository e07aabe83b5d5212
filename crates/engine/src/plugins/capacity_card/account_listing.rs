//! Accounts of queues and jobs, as listings show them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::card_rules::CardRules;
use super::corrected::CapacityState;
use super::metrics;
use super::queue_account::QueueAccount;
use super::upstream::UpstreamCapacityState;
use crate::cards::{CardOnNode, NodeCards};
use crate::model::{ClusterState, JobRecord, Reservation};
use crate::plugin::{AccountAmounts, NodeCard, PluginAccount, PluginAccounts, QueueGauge};

/// Implements [`PluginAccounts`](crate::plugin::PluginAccounts) for states under the plugin's rules: a state is listed by
/// what [`CardRules`] says of it.
macro_rules! list_accounts {
    ($($state:ty),+) => {
        $(impl PluginAccounts for $state {
            fn job_account(&self, cluster_state: &ClusterState, job: &JobRecord) -> Option<PluginAccount> {
                Some(self.listed_job(cluster_state, job))
            }

            fn queue_account(&self, queue: &str) -> Option<PluginAccount> {
                let account = self.account(queue)?;
                Some(queue_account(account, self.limits_own_cards(&Arc::from(queue))))
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
                self.cards().node_cards(node).map(node_cards).unwrap_or_default()
            }
        })+
    };
}

list_accounts!(CapacityState, UpstreamCapacityState);

/// Account of a queue. `limits_own_cards`: it may hold no card that its quota does not name.
pub(super) fn queue_account(account: &QueueAccount, limits_own_cards: bool) -> PluginAccount {
    let limits = &account.limits;
    let (share, dominant_resource) = account.dominant_share();
    let mut capability = all_amounts(&limits.capability);
    // Without a limit of cpu or memory, the first two, there is nothing to show.
    let mut shown = [limits.cpu_limited, limits.memory_limited].into_iter();
    capability.retain(|_| shown.next().unwrap_or(true));
    if limits_own_cards {
        capability.extend(unnamed_cards(account));
    }
    PluginAccount {
        allocated: all_amounts(&account.allocated),
        request: all_amounts(&account.request),
        inqueue: all_amounts(&account.inqueue),
        elastic: all_amounts(&account.elastic),
        deserved: all_amounts(&limits.deserved),
        guarantee: all_amounts(&limits.guarantee),
        capability,
        real_capability: all_amounts(&limits.real_capability),
        min_resources: Vec::new(),
        share,
        dominant_resource,
    }
}

fn node_cards(found: &NodeCards) -> Vec<NodeCard> {
    let card = |(card, on_node): (&Arc<str>, &CardOnNode)| NodeCard {
        card: Arc::clone(card),
        resource: on_node.resource,
        count: u64::try_from(on_node.cards).unwrap_or(0),
    };
    found.cards.iter().map(card).collect()
}

/// Capability of the cards that a queue's account names and its quota does not: 0. A choice of cards has none of its own.
fn unnamed_cards(account: &QueueAccount) -> AccountAmounts {
    let sums = [&account.allocated, &*account.request, &account.inqueue];
    let named = sums.into_iter().flat_map(QuotaAmounts::cards).map(|(name, _)| name);
    let unnamed = named.filter(|name| !name.contains('|') && account.limits.capability.card(name).is_none());
    let unnamed: BTreeSet<&Arc<str>> = unnamed.collect();
    unnamed.into_iter().map(|name| (Arc::clone(name), 0.0)).collect()
}

/// Amounts by name: cpu and memory first, then cards.
pub(super) fn all_amounts(counts: &QuotaAmounts) -> AccountAmounts {
    let named = counts.named();
    named.map(|(name, value)| (Arc::clone(name), value as f64)).collect()
}
