//! Gauges of queues, under the names that Volcano gives them.

use std::sync::Arc;

use super::account::QueueTotals;
use crate::model::ResourceTable;
use crate::plugin::{AccountAmounts, QueueGauge};

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

/// Gauges of these queues.
pub(crate) fn account_gauges<'a>(
    names: &ResourceTable,
    accounts: impl Iterator<Item = (&'a Arc<str>, &'a Arc<QueueTotals>)>,
) -> Vec<QueueGauge> {
    let mut gauges = Vec::new();
    for (queue, account) in accounts {
        let shown = account.shown(names);
        push_gauges(&mut gauges, queue, DESERVED, &shown.deserved);
        push_gauges(&mut gauges, queue, ALLOCATED, &shown.allocated);
        push_gauges(&mut gauges, queue, REQUEST, &shown.request);
        push_gauges(&mut gauges, queue, CAPACITY, &shown.capability);
        push_gauges(&mut gauges, queue, REAL_CAPACITY, &shown.real_capability);
        gauges.push(gauge(SHARE, queue, None, account.share));
    }
    gauges
}

fn push_gauges(gauges: &mut Vec<QueueGauge>, queue: &Arc<str>, names: QuotaGaugeNames, amounts: &AccountAmounts) {
    let [cpu, memory, scalars] = names;
    for (resource, amount) in amounts {
        gauges.push(match &**resource {
            "cpu" => gauge(cpu, queue, None, *amount),
            "memory" => gauge(memory, queue, None, *amount),
            _ => gauge(scalars, queue, Some(("resource", Arc::clone(resource))), *amount),
        });
    }
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
        Some("resources") => "thousandths of a resource, or pods",
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
