//! What plugins keep for jobs, queues and nodes, as listings show it.

use std::sync::Arc;

use crate::engine::derived::DerivedSet;
use crate::engine::model::{JobRecord, Reservation, ResourceId, ResourceTable, View};
use crate::engine::plugins::capacity_card::{CapacityState, Counts, PLUGIN};
use crate::engine::plugins::drf::{self, Drf};
use crate::server::pb;

use super::amounts::{answer_amounts, answer_floats};

/// Accounts of a job.
pub(super) fn of_job(view: &View, job: &JobRecord, derived: &DerivedSet) -> Vec<pb::Account> {
    let resources = view.resources();
    let shares = derived.get::<Drf>(drf::NAME).and_then(|drf| drf.job(&job.name));
    let amounts = |amounts: Vec<(ResourceId, i128)>| answer_amounts(amounts.into_iter(), resources);
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
        .map(|state| card_job(state, view, job));
    card.into_iter().chain(shares.map(account)).collect()
}

/// Accounts of a queue: under drf, of its node in the hierarchy.
pub(super) fn of_queue(queue: &str, derived: &DerivedSet, resources: &ResourceTable) -> Vec<pb::Account> {
    let node = derived.get::<Drf>(drf::NAME).and_then(|drf| drf.queue_node(queue));
    let account = |node: drf::TreeNode| pb::Account {
        plugin: drf::NAME.to_owned(),
        allocated: answer_floats(node.held.into_iter(), resources),
        share: node.share,
        dominant_resource: text(node.dominant),
        ..pb::Account::default()
    };
    let card = derived
        .get::<CapacityState>(PLUGIN)
        .and_then(|state| card_queue(state, queue));
    card.into_iter().chain(node.map(account)).collect()
}

fn text(text: Option<Arc<str>>) -> String {
    text.map_or_else(String::new, |text| text.to_string())
}

fn card_queue(state: &CapacityState, queue: &str) -> Option<pb::Account> {
    let account = state.account(queue)?;
    let (limits, share) = (&account.limits, account.dominant());
    Some(pb::Account {
        plugin: PLUGIN.to_owned(),
        allocated: all(&account.allocated),
        request: all(&account.request),
        inqueue: all(&account.inqueue),
        elastic: all(&account.elastic),
        deserved: all(&limits.deserved),
        guarantee: all(&limits.guarantee),
        capability: amounts(&limits.capability, limits.cpu_limited, limits.memory_limited),
        real_capability: all(&limits.real_capability),
        min_resources: Vec::new(),
        share: share.value,
        dominant_resource: share.dominant.to_string(),
    })
}

fn card_job(state: &CapacityState, view: &View, job: &JobRecord) -> pb::Account {
    let figures = state.job_figures(view, job);
    pb::Account {
        plugin: PLUGIN.to_owned(),
        allocated: all(&figures.allocated),
        request: all(&figures.card_request),
        inqueue: all(&figures.inqueue),
        elastic: all(&figures.elastic),
        min_resources: all(&figures.min_resources),
        ..pb::Account::default()
    }
}

/// What is still kept back of a reservation; `None`: no plugin says it.
pub(in crate::server) fn held_of(derived: &DerivedSet, row: &Reservation) -> Option<Vec<pb::Amount>> {
    let held = derived.get::<CapacityState>(PLUGIN)?.held_of(row);
    let some = |counts: &Counts| all(counts).into_iter().filter(|amount| amount.value != 0.0).collect();
    Some(some(&held))
}

/// Cpu and memory where there is a limit, and cards.
fn amounts(counts: &Counts, with_cpu: bool, with_memory: bool) -> Vec<pb::Amount> {
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

fn all(counts: &Counts) -> Vec<pb::Amount> {
    amounts(counts, true, true)
}

/// The cards of a node, by name.
pub(super) fn cards(node: &str, resources: &ResourceTable, derived: &DerivedSet) -> Vec<pb::NodeCard> {
    let state = derived.get::<CapacityState>(PLUGIN);
    let found = state.and_then(|state| state.cards().on_node(node));
    let cards = found.into_iter().flat_map(|found| &found.cards);
    cards
        .map(|(card, on_node)| pb::NodeCard {
            card: card.to_string(),
            resource: resources.name(on_node.resource).to_owned(),
            count: u64::try_from(on_node.cards).unwrap_or(0),
        })
        .collect()
}
