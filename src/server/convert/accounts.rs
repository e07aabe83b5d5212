//! Accounts that plugins keep of jobs, queues and nodes, as listings show them.

use std::sync::Arc;

use crate::server::pb;
use pumice_engine::model::{ClusterState, JobRecord, Reservation, ResourceTable};
use pumice_engine::plugin::{AccountAmounts, PluginAccount, PluginAccounts};
use pumice_engine::plugin_state::PluginStates;

/// Accounts that plugins keep, by name of the plugin.
pub(super) type NamedAccounts<'a> = [(&'a Arc<str>, &'a dyn PluginAccounts)];

/// Accounts of a job, by plugin.
pub(super) fn job_accounts(
    cluster_state: &ClusterState,
    job: &JobRecord,
    by_plugin: &NamedAccounts<'_>,
) -> Vec<pb::Account> {
    let accounts = by_plugin.iter();
    let account = accounts.filter_map(|(plugin, own)| Some(account(plugin, own.job_account(cluster_state, job)?)));
    account.collect()
}

/// Accounts of a queue, by plugin.
pub(super) fn queue_accounts(queue: &str, by_plugin: &NamedAccounts<'_>) -> Vec<pb::Account> {
    let accounts = by_plugin.iter();
    let account = accounts.filter_map(|(plugin, own)| Some(account(plugin, own.queue_account(queue)?)));
    account.collect()
}

fn account(plugin: &Arc<str>, account: PluginAccount) -> pb::Account {
    let PluginAccount {
        allocated,
        request,
        inqueue,
        elastic,
        deserved,
        guarantee,
        capability,
        real_capability,
        min_resources,
        share,
        dominant_resource,
    } = account;
    pb::Account {
        plugin: plugin.to_string(),
        allocated: account_amounts(&allocated),
        request: account_amounts(&request),
        inqueue: account_amounts(&inqueue),
        elastic: account_amounts(&elastic),
        deserved: account_amounts(&deserved),
        guarantee: account_amounts(&guarantee),
        capability: account_amounts(&capability),
        real_capability: account_amounts(&real_capability),
        min_resources: account_amounts(&min_resources),
        share,
        dominant_resource: dominant_resource.to_string(),
    }
}

pub(super) fn account_amounts(amounts: &AccountAmounts) -> Vec<pb::Amount> {
    let amount = |(name, value): &(Arc<str>, f64)| pb::Amount {
        resource: name.to_string(),
        value: *value,
    };
    amounts.iter().map(amount).collect()
}

/// Amounts of a reservation that are still reserved. `None`: plugins do not track them.
pub(in crate::server) fn reserved_amounts(derived: &PluginStates, row: &Reservation) -> Option<Vec<pb::Amount>> {
    let mut left = derived.accounts().into_iter();
    let left = left.find_map(|(_, accounts)| accounts.remaining_reservation(row))?;
    Some(account_amounts(&left))
}

/// The cards of a node, by name.
pub(super) fn node_cards(node: &str, resources: &ResourceTable, by_plugin: &NamedAccounts<'_>) -> Vec<pb::NodeCard> {
    let cards = by_plugin.iter().flat_map(|(_, accounts)| accounts.node_cards(node));
    cards
        .map(|card| pb::NodeCard {
            card: card.card.to_string(),
            resource: resources.name(card.resource).to_owned(),
            count: card.count,
        })
        .collect()
}
