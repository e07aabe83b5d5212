//! Amounts that a queue deserves and does not hold, while other queues hold more than they deserve.

use std::collections::{BTreeMap, BTreeSet};

use super::hint::Hint;
use super::report::{EvictionReport, ExplainReport, LentAmount, LentHolder};
use super::units::{account_unit, to_measurement};
use pumice_console::output;
use pumice_console::pinned_client::KnownRecords;
use pumice_protocol::v1 as pb;

/// Number of queues that are named.
const NAMED: usize = 3;
/// Action that takes amounts back.
pub(super) const RECLAIM: &str = "reclaim";

/// Amounts by resource.
pub(super) type AmountsByName<'a> = BTreeMap<&'a str, f64>;

/// Amounts in units for people, by resource.
pub(super) fn by_name(amounts: &[pb::Amount]) -> AmountsByName<'_> {
    let values = amounts.iter();
    values
        .map(|amount| (amount.resource.as_str(), to_measurement(amount).value))
        .collect()
}

/// Resources that the queue has lent: it holds less than it deserves while reclaimable queues hold more than they
/// deserve.
pub(super) fn lent_amounts(known: &KnownRecords, queue: &str) -> Vec<LentAmount> {
    let accounts = known.queues.get(queue).map_or(&[][..], |status| &status.accounts);
    let Some(own) = accounts.iter().find(|account| !account.deserved.is_empty()) else {
        return Vec::new();
    };
    let held = by_name(&own.allocated);
    let records = known.queues.values().filter_map(|status| status.queue.as_ref());
    let parents: BTreeSet<&str> = records.map(|record| record.parent.as_str()).collect();
    let amount = |(resource, deserves): (&str, f64)| {
        let holds = held.get(resource).copied().unwrap_or(0.0);
        // What a queue above others holds is what those hold.
        let others = known.queues.iter();
        let others = others.filter(|(name, _)| *name != queue && !parents.contains(name.as_str()));
        let holders = others.filter_map(|(name, status)| {
            let beyond = amount_beyond(status, &own.plugin, resource)?;
            Some(LentHolder {
                queue: name.clone(),
                beyond,
            })
        });
        let mut holders: Vec<LentHolder> = holders.collect();
        holders.sort_by(|one, other| other.beyond.total_cmp(&one.beyond));
        (resource != "pods" && holds < deserves && !holders.is_empty()).then(|| LentAmount {
            resource: resource.to_owned(),
            unit: account_unit(resource),
            holds,
            deserves,
            holders,
        })
    };
    by_name(&own.deserved).into_iter().filter_map(amount).collect()
}

/// Amount that a leaf holds beyond what it deserves, if others may reclaim it.
fn amount_beyond(status: &pb::QueueStatus, plugin: &str, resource: &str) -> Option<f64> {
    let account = status.accounts.iter().find(|account| account.plugin == plugin)?;
    let of = |amounts: &[pb::Amount]| by_name(amounts).get(resource).copied().unwrap_or(0.0);
    let beyond = of(&account.allocated) - of(&account.deserved);
    let is_reclaimable = status
        .queue
        .as_ref()
        .is_some_and(|queue| queue.reclaimable != Some(false));
    (beyond > 0.0 && is_reclaimable).then_some(beyond)
}

/// Hints for a subject that finds no room: what its queue deserves of what is short, who has it, and whether an action takes it
/// back.
pub(super) fn hints(report: &ExplainReport) -> Vec<Hint> {
    let Some(queue) = &report.queue else {
        return Vec::new();
    };
    let rejections = report.task_classes.iter().flat_map(|class| &class.rejections);
    let admissions = report.task_classes.iter().filter_map(|class| class.admission.as_ref());
    let of_queue = admissions.flat_map(|admission| &admission.reasons);
    let reasons = rejections.map(|one| &one.reason).chain(of_queue);
    let short: Vec<&str> = reasons.map(|reason| reason.resource.as_str()).collect();
    let lent = queue.lent.iter().filter(|lent| short.contains(&lent.resource.as_str()));
    let evictions = report.task_classes.iter().flat_map(|class| &class.evictions);
    let reclaims: Vec<&EvictionReport> = evictions.filter(|eviction| eviction.action == RECLAIM).collect();
    lent.map(|lent| hint(&queue.name, lent, reclaims.first().copied()).into())
        .collect()
}

fn hint(queue: &str, lent: &LentAmount, reclaim: Option<&EvictionReport>) -> String {
    let LentAmount {
        resource,
        unit,
        holds,
        deserves,
        holders,
    } = lent;
    let shown = |value: f64| output::with_unit(value, unit);
    let named = holders.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|one| format!("{} {}", one.queue, shown(one.beyond)))
        .collect();
    let others = match holders.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more queues"),
    };
    let held = format!(
        "queue {queue} holds {} of the {} of {resource} that it deserves; other queues hold more than they deserve: {}{others}",
        shown(*holds),
        shown(*deserves),
        named.join(", ")
    );
    match reclaim {
        Some(reclaim) if reclaim.in_policy => format!("{held}; the action `{RECLAIM}` takes that back"),
        Some(_) => format!("{held}; add `{RECLAIM}` to the actions of the policy to take that back"),
        None => held,
    }
}
