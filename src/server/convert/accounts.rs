//! Accounts that plugins have of jobs, queues and nodes, as listings show them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::model::{ClusterState, JobRecord, Reservation, ResourceId, ResourceTable};
use crate::engine::plugin_state::PluginStates;
use crate::engine::plugins::capacity_card::{CapacityState, PLUGIN, QueueAccount, QuotaAmounts};
use crate::engine::plugins::drf::{self, DrfState};
use crate::server::pb;

use super::amounts::{result_amounts, result_float_amounts};

/// Accounts of a job.
pub(super) fn job_accounts(cluster_state: &ClusterState, job: &JobRecord, derived: &PluginStates) -> Vec<pb::Account> {
    let resources = cluster_state.resources();
    let shares = derived
        .get::<DrfState>(drf::NAME)
        .and_then(|drf| drf.job_summary(&job.name));
    let amounts = |amounts: Vec<(ResourceId, i128)>| result_amounts(amounts.into_iter(), resources);
    let account = |own: drf::JobShare| pb::Account {
        plugin: drf::NAME.to_owned(),
        allocated: amounts(own.held),
        request: amounts(own.requested),
        share: own.share,
        dominant_resource: text(own.dominant),
        ..pb::Account::default()
    };
    let card = derived
        .get::<CapacityState>(PLUGIN)
        .map(|state| card_job_account(state, cluster_state, job));
    card.into_iter().chain(shares.map(account)).collect()
}

/// Accounts of a queue; under drf, of its node in the hierarchy.
pub(super) fn queue_accounts(queue: &str, derived: &PluginStates, resources: &ResourceTable) -> Vec<pb::Account> {
    let node = derived.get::<DrfState>(drf::NAME).and_then(|drf| drf.queue_node(queue));
    let account = |node: drf::ShareTreeNode| pb::Account {
        plugin: drf::NAME.to_owned(),
        allocated: result_float_amounts(node.held.into_iter(), resources),
        share: node.share,
        dominant_resource: text(node.dominant),
        ..pb::Account::default()
    };
    let card = derived
        .get::<CapacityState>(PLUGIN)
        .and_then(|state| card_queue_account(state, queue));
    card.into_iter().chain(node.map(account)).collect()
}

fn text(text: Option<Arc<str>>) -> String {
    text.map_or_else(String::new, |text| text.to_string())
}

fn card_queue_account(state: &CapacityState, queue: &str) -> Option<pb::Account> {
    let account = state.account(queue)?;
    let (limits, share) = (&account.limits, account.dominant_share());
    let mut capability = amounts(&limits.capability, limits.cpu_limited, limits.memory_limited);
    if state.limits_own_cards(queue) {
        capability.extend(unnamed_cards(account));
    }
    Some(pb::Account {
        plugin: PLUGIN.to_owned(),
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
        dominant_resource: share.dominant.to_string(),
    })
}

/// Capability of the cards that a queue's account names and its quota does not: 0. A choice of cards has none of its own.
fn unnamed_cards(account: &QueueAccount) -> Vec<pb::Amount> {
    let sums = [&account.allocated, &*account.request, &account.inqueue];
    let named = sums.into_iter().flat_map(QuotaAmounts::cards).map(|(name, _)| name);
    let unnamed = named.filter(|name| !name.contains('|') && account.limits.capability.card(name).is_none());
    let unnamed: BTreeSet<&Arc<str>> = unnamed.collect();
    let zero = |name: &Arc<str>| pb::Amount {
        resource: name.to_string(),
        value: 0.0,
    };
    unnamed.into_iter().map(zero).collect()
}

fn card_job_account(state: &CapacityState, cluster_state: &ClusterState, job: &JobRecord) -> pb::Account {
    let measurements = state.job_quota_summary(cluster_state, job);
    pb::Account {
        plugin: PLUGIN.to_owned(),
        allocated: all_amounts(&measurements.allocated),
        request: all_amounts(&measurements.card_request),
        inqueue: all_amounts(&measurements.inqueue),
        elastic: all_amounts(&measurements.elastic),
        min_resources: all_amounts(&measurements.min_resources),
        ..pb::Account::default()
    }
}

/// Amounts of a reservation that are still reserved; `None`: no plugin knows.
pub(in crate::server) fn reserved_amounts(derived: &PluginStates, row: &Reservation) -> Option<Vec<pb::Amount>> {
    let held = derived.get::<CapacityState>(PLUGIN)?.remaining_reservation(row);
    let some = |counts: &QuotaAmounts| {
        all_amounts(counts)
            .into_iter()
            .filter(|amount| amount.value != 0.0)
            .collect()
    };
    Some(some(&held))
}

/// Amounts of cpu and memory where there is a limit, and of cards.
fn amounts(counts: &QuotaAmounts, with_cpu: bool, with_memory: bool) -> Vec<pb::Amount> {
    let amount = |resource: &str, value: i128| pb::Amount {
        resource: resource.to_owned(),
        value: value as f64,
    };
    let plain = [("cpu", counts.cpu, with_cpu), ("memory", counts.memory, with_memory)];
    let plain = plain.into_iter().filter(|(_, _, shown)| *shown);
    plain
        .map(|(name, value, _)| amount(name, value))
        .chain(counts.cards().map(|(name, value)| amount(name, value)))
        .collect()
}

fn all_amounts(counts: &QuotaAmounts) -> Vec<pb::Amount> {
    amounts(counts, true, true)
}

/// The cards of a node, by name.
pub(super) fn node_cards(node: &str, resources: &ResourceTable, derived: &PluginStates) -> Vec<pb::NodeCard> {
    let state = derived.get::<CapacityState>(PLUGIN);
    let found = state.and_then(|state| state.cards().node_cards(node));
    let cards = found.into_iter().flat_map(|found| &found.cards);
    cards
        .map(|(card, on_node)| pb::NodeCard {
            card: card.to_string(),
            resource: resources.name(on_node.resource).to_owned(),
            count: u64::try_from(on_node.cards).unwrap_or(0),
        })
        .collect()
}
