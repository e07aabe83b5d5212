//! What plugins keep for jobs and queues, as listings show it.

use std::sync::Arc;

use crate::engine::derived::DerivedSet;
use crate::engine::model::{ResourceId, ResourceTable};
use crate::engine::plugins::drf::{self, Drf};
use crate::server::pb;

use super::amounts::{answer_amounts, answer_floats};

/// Accounts of a job.
pub(super) fn of_job(job: &str, derived: &DerivedSet, resources: &ResourceTable) -> Vec<pb::Account> {
    let shares = derived.get::<Drf>(drf::NAME).and_then(|drf| drf.job(job));
    let amounts = |amounts: Vec<(ResourceId, i128)>| answer_amounts(amounts.into_iter(), resources);
    let account = |own: drf::JobShare| pb::Account {
        plugin: drf::NAME.to_owned(),
        allocated: amounts(own.held),
        request: amounts(own.requested),
        share: own.share,
        dominant_resource: text(own.dominant),
        ..pb::Account::default()
    };
    shares.map(account).into_iter().collect()
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
    node.map(account).into_iter().collect()
}

fn text(text: Option<Arc<str>>) -> String {
    text.map_or_else(String::new, |text| text.to_string())
}
