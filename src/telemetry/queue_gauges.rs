//! Gauges of queues, from the plugin states of the newest snapshot; computed when the page is requested.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::engine::Snapshot;
use crate::engine::plugins::capacity_card::metrics::{self, QueueGauge};
use crate::engine::plugins::capacity_card::{CapacityState, PLUGIN};

/// Maximum number of series of queues on the page; the last queues by name are left out first.
const MAX_SERIES: usize = 50_000;

/// Labels of a gauge: names and values.
type QueueGaugeLabels = Vec<(&'static str, String)>;
type QueueGaugeFamily = Family<QueueGaugeLabels, Gauge<f64, AtomicU64>>;

/// Gauges by name, and the number of series that were left out.
#[derive(Debug, Default)]
struct QueueGaugePage {
    families: BTreeMap<&'static str, QueueGaugeFamily>,
    series: usize,
    omitted: usize,
}

impl QueueGaugePage {
    fn put(&mut self, policy: &str, gauge: &QueueGauge, of_cards: bool) {
        if self.series >= MAX_SERIES {
            self.omitted += 1;
            return;
        }
        self.series += 1;
        let mut labels = vec![("policy", policy.to_owned()), ("queue_name", gauge.queue.to_string())];
        if !gauge.resource.is_empty() {
            labels.push((if of_cards { "card" } else { "resource" }, gauge.resource.to_string()));
        }
        let family = self.families.entry(gauge.name).or_default();
        family.get_or_create(&labels).set(gauge.value);
    }
}

/// Writes the gauges of all policies with `capacity-card`. May take long, because plugin states may have to be
/// computed.
pub(super) fn write(text: &mut String, snapshot: &Arc<Snapshot>) -> fmt::Result {
    let mut page = QueueGaugePage::default();
    for (name, policy) in snapshot.policies.iter() {
        if policy.policy.registered(PLUGIN).is_none() {
            continue;
        }
        let derived = snapshot.plugin_states(policy);
        let Some(state) = derived.get::<CapacityState>(PLUGIN) else {
            continue;
        };
        for gauge in metrics::card_gauges(state, &snapshot.state) {
            page.put(name, &gauge, true);
        }
        for gauge in metrics::queue_gauges(state, &snapshot.state) {
            page.put(name, &gauge, false);
        }
    }
    let mut registry = Registry::default();
    for (name, family) in page.families {
        registry.register(name, help(name), family);
    }
    let left_out: Gauge<u64, AtomicU64> = Gauge::default();
    left_out.set(u64::try_from(page.omitted).unwrap_or(u64::MAX));
    let about = "Series of queues that are left out of the page";
    registry.register("pumice_queue_series_omitted", about, left_out);
    encode_registry(text, &registry)
}

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
