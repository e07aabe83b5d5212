//! The gauges of queues, as the reference sets them, and those of cards under the names that its design gives them.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::card_accounts::CardAccounts;
use super::queue_limits::CardQuota;
use crate::model::{ClusterState, QueueRecord};
use crate::plugin::QueueGauge;

/// Names of an amount's three gauges: cpu, memory, cards.
type GaugeNames = [&'static str; 3];

const DESERVED: GaugeNames = [
    "volcano_queue_deserved_milli_cpu",
    "volcano_queue_deserved_memory_bytes",
    "volcano_queue_deserved_scalar_resources",
];
const ALLOCATED: GaugeNames = [
    "volcano_queue_allocated_milli_cpu",
    "volcano_queue_allocated_memory_bytes",
    "volcano_queue_allocated_scalar_resources",
];
const REQUEST: GaugeNames = [
    "volcano_queue_request_milli_cpu",
    "volcano_queue_request_memory_bytes",
    "volcano_queue_request_scalar_resources",
];
const CAPACITY: GaugeNames = [
    "volcano_queue_capacity_milli_cpu",
    "volcano_queue_capacity_memory_bytes",
    "volcano_queue_capacity_scalar_resources",
];
const REAL_CAPACITY: GaugeNames = [
    "volcano_queue_real_capacity_milli_cpu",
    "volcano_queue_real_capacity_memory_bytes",
    "volcano_queue_real_capacity_scalar_resources",
];
const CARDS: [&str; 4] = [
    "volcano_queue_card_deserved",
    "volcano_queue_card_allocated",
    "volcano_queue_card_request",
    "volcano_queue_card_capacity",
];
const SHARE: &str = "volcano_queue_share";

/// All gauges, by queue.
pub(super) fn queue_gauges(state: &CardAccounts, cluster_state: &ClusterState) -> Vec<QueueGauge> {
    let mut gauges = Vec::new();
    for (name, queue) in cluster_state.queues().iter() {
        match state.account(name) {
            Some(account) => {
                let limits = &account.limits;
                push_gauges(&mut gauges, name, DESERVED, &limits.deserved);
                push_gauges(&mut gauges, name, ALLOCATED, &account.allocated);
                push_gauges(&mut gauges, name, REQUEST, &account.request);
                push_gauges(&mut gauges, name, CAPACITY, &limits.capability);
                push_gauges(&mut gauges, name, REAL_CAPACITY, &limits.real_capability);
                gauges.push(gauge(SHARE, name, None, account.share()));
            }
            None => push_empty_queue(&mut gauges, state, &queue.record),
        }
    }
    gauges
}

/// Whole cards of every queue, under the names of the plugin's design: deserved, held, asked for (held or pending), and
/// the quota.
pub(super) fn card_gauges(state: &CardAccounts, cluster_state: &ClusterState) -> Vec<QueueGauge> {
    let mut gauges = Vec::new();
    for (name, queue) in cluster_state.queues().iter() {
        let (own, limits);
        let (none, request) = (QuotaAmounts::default(), Arc::default());
        let (allocated, request) = if let Some(account) = state.account(name) {
            limits = &*account.limits;
            (&account.allocated, &account.request)
        } else {
            own = state.limits(&queue.record);
            limits = &own;
            (&none, &request)
        };
        let amounts = [&limits.deserved, allocated, request, &limits.capability];
        for (metric, amounts) in CARDS.into_iter().zip(amounts) {
            gauges.extend(amounts.cards().map(|(card, milli)| {
                let label = Some(("card", Arc::clone(card)));
                gauge(metric, name, label, milli as f64 / 1000.0)
            }));
        }
    }
    gauges
}

/// Of a queue without jobs.
fn push_empty_queue(gauges: &mut Vec<QueueGauge>, state: &CardAccounts, queue: &QueueRecord) {
    let quota = CardQuota::of(queue, state.compatibility);
    let deserved = match &queue.deserved {
        Some(deserved) => quota.with_cpu_memory(Some(deserved)),
        None => QuotaAmounts::default(),
    };
    push_gauges(gauges, &queue.name, DESERVED, &deserved);
    push_gauges(gauges, &queue.name, ALLOCATED, &QuotaAmounts::default());
    push_gauges(gauges, &queue.name, REQUEST, &QuotaAmounts::default());
    let limits = state.limits(queue);
    // The reference adds the own guarantee, quota included, only if the guarantee is said.
    let mut real = state.cards().total().saturating_sub(state.total_guaranteed());
    if queue.guarantee.is_some() {
        real.add(&limits.guarantee);
    }
    if queue.capability.is_some() {
        push_gauges(gauges, &queue.name, CAPACITY, &limits.capability);
        real = min_with_ceiling(&real, &limits.capability);
    }
    push_gauges(gauges, &queue.name, REAL_CAPACITY, &real);
}

/// The smaller of both; cards that the ceiling does not name have no ceiling.
fn min_with_ceiling(counts: &QuotaAmounts, ceiling: &QuotaAmounts) -> QuotaAmounts {
    let mut least = QuotaAmounts::new(counts.cpu.min(ceiling.cpu), counts.memory.min(ceiling.memory));
    for (name, amount) in counts.cards() {
        least.set_card(name, amount.min(ceiling.card(name).unwrap_or(amount)));
    }
    least
}

fn push_gauges(
    gauges: &mut Vec<QueueGauge>,
    queue: &Arc<str>,
    [cpu, memory, cards]: GaugeNames,
    counts: &QuotaAmounts,
) {
    gauges.push(gauge(cpu, queue, None, counts.cpu as f64));
    gauges.push(gauge(memory, queue, None, counts.memory as f64));
    gauges.extend(counts.cards().map(|(name, amount)| {
        let label = Some(("resource", Arc::clone(name)));
        gauge(cards, queue, label, amount as f64)
    }));
}

fn gauge(name: &'static str, queue: &Arc<str>, label: Option<(&'static str, Arc<str>)>, value: f64) -> QueueGauge {
    QueueGauge {
        name,
        help,
        queue: Arc::clone(queue),
        label,
        value,
    }
}

/// Sentence about a metric, with its unit.
fn help(name: &str) -> String {
    let unit = match name.rsplit('_').next() {
        Some("cpu") => "milli-cores",
        Some("bytes") => "bytes of memory",
        Some("resources") => "thousandths of cards",
        _ if name.starts_with("volcano_queue_card_") => "cards",
        _ => return "Largest ratio of a queue's allocated to its deserved amount over all resources".to_owned(),
    };
    let what = match name {
        _ if name.contains("real_capacity") => {
            "Amount that the cluster leaves to a queue after the guarantees of others"
        }
        _ if name.contains("capacity") => "Amount that a queue may hold",
        _ if name.contains("deserved") => "Amount that a queue deserves",
        _ if name.contains("allocated") => "Amount that a queue holds",
        _ => "Amount that a queue holds or waits for",
    };
    format!("{what}, in {unit}")
}
