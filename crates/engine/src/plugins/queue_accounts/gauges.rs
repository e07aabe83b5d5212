//! Gauges of queues, under the names that Volcano gives them.

use std::sync::Arc;

use crate::plugin::{AccountAmounts, PluginAccount, QueueGauge};

/// Names of an amount's three gauges: cpu, memory, other resources.
type QuotaGaugeNames = [&'static str; 3];

const DESERVED: QuotaGaugeNames = [
    "volcano_queue_deserved_milli_cpu",
    "volcano_queue_deserved_memory_bytes",
    "volcano_queue_deserved_scalar_resources",
];
const ALLOCATED: QuotaGaugeNames = [
    "volcano_queue_allocated_milli_cpu",
    "volcano_queue_allocated_memory_bytes",
    "volcano_queue_allocated_scalar_resources",
];
const REQUEST: QuotaGaugeNames = [
    "volcano_queue_request_milli_cpu",
    "volcano_queue_request_memory_bytes",
    "volcano_queue_request_scalar_resources",
];
const CAPACITY: QuotaGaugeNames = [
    "volcano_queue_capacity_milli_cpu",
    "volcano_queue_capacity_memory_bytes",
    "volcano_queue_capacity_scalar_resources",
];
const REAL_CAPACITY: QuotaGaugeNames = [
    "volcano_queue_real_capacity_milli_cpu",
    "volcano_queue_real_capacity_memory_bytes",
    "volcano_queue_real_capacity_scalar_resources",
];
const SHARE: &str = "volcano_queue_share";

/// Sentence about a metric of a name, with its unit.
type GaugeHelp = fn(&str) -> String;

/// Adds the gauges of a queue's amounts and of its share. `account`: as listings show it.
pub(crate) fn push_account(gauges: &mut Vec<QueueGauge>, queue: &Arc<str>, account: &PluginAccount, help: GaugeHelp) {
    push_amounts(gauges, queue, account, help);
    gauges.push(gauge(SHARE, queue, None, account.share, help));
}

/// Adds the gauges of a queue's amounts. Cpu and memory are the first two amounts, if they are there.
pub(crate) fn push_amounts(gauges: &mut Vec<QueueGauge>, queue: &Arc<str>, account: &PluginAccount, help: GaugeHelp) {
    push_gauges(gauges, queue, DESERVED, &account.deserved, help);
    push_gauges(gauges, queue, ALLOCATED, &account.allocated, help);
    push_gauges(gauges, queue, REQUEST, &account.request, help);
    push_gauges(gauges, queue, CAPACITY, &account.capability, help);
    push_gauges(gauges, queue, REAL_CAPACITY, &account.real_capability, help);
}

fn push_gauges(
    gauges: &mut Vec<QueueGauge>,
    queue: &Arc<str>,
    [cpu, memory, scalars]: QuotaGaugeNames,
    amounts: &AccountAmounts,
    help: GaugeHelp,
) {
    for (place, (resource, amount)) in amounts.iter().enumerate() {
        gauges.push(match (place, &**resource) {
            (0, "cpu") => gauge(cpu, queue, None, *amount, help),
            (0 | 1, "memory") => gauge(memory, queue, None, *amount, help),
            _ => gauge(scalars, queue, Some(("resource", Arc::clone(resource))), *amount, help),
        });
    }
}

/// Gauge of a queue, with another label and its value.
pub(crate) fn gauge(
    name: &'static str,
    queue: &Arc<str>,
    label: Option<(&'static str, Arc<str>)>,
    value: f64,
    help: GaugeHelp,
) -> QueueGauge {
    QueueGauge {
        name,
        help,
        queue: Arc::clone(queue),
        label,
        value,
    }
}

/// Sentence about a metric, with its unit. `scalars`: unit of resources other than cpu and memory.
pub(crate) fn help(name: &str, scalars: &str) -> String {
    match name.rsplit('_').next() {
        Some("cpu") => amount_help(name, "milli-cores"),
        Some("bytes") => amount_help(name, "bytes of memory"),
        Some("resources") => amount_help(name, scalars),
        _ => "Largest ratio of a queue's allocated to its deserved amount over all resources".to_owned(),
    }
}

/// Sentence about a metric of amounts in a unit.
pub(crate) fn amount_help(name: &str, unit: &str) -> String {
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
