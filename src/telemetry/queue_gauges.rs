//! Gauges of queues, from the plugin states of the newest snapshot; computed when the page is requested.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use pumice_engine::Snapshot;
use pumice_engine::plugin::QueueGauge;

/// Maximum number of series of queues on the page; the last queues by name are left out first.
const MAX_SERIES: usize = 50_000;

/// Labels of a gauge: names and values.
type QueueGaugeLabels = Vec<(&'static str, String)>;
type QueueGaugeFamily = Family<QueueGaugeLabels, Gauge<f64, AtomicU64>>;

/// Help and values by name of the gauge, and the number of series that were left out.
#[derive(Debug, Default)]
struct QueueGaugePage {
    families: BTreeMap<&'static str, (String, QueueGaugeFamily)>,
    series: usize,
    omitted: usize,
}

impl QueueGaugePage {
    fn put(&mut self, policy: &str, gauge: QueueGauge) {
        if self.series >= MAX_SERIES {
            self.omitted += 1;
            return;
        }
        self.series += 1;
        let mut labels = vec![("policy", policy.to_owned()), ("queue_name", gauge.queue.to_string())];
        labels.extend(gauge.label.map(|(label, value)| (label, value.to_string())));
        let (_, family) = self
            .families
            .entry(gauge.name)
            .or_insert_with(|| ((gauge.help)(gauge.name), Family::default()));
        family.get_or_create(&labels).set(gauge.value);
    }
}

/// Writes the gauges of all policies that have some. May take long, because plugin states may have to be
/// computed.
pub(super) fn write(text: &mut String, snapshot: &Arc<Snapshot>) -> fmt::Result {
    let mut page = QueueGaugePage::default();
    for (name, policy) in snapshot
        .policies
        .iter()
        .filter(|(_, policy)| policy.policy.has_gauges())
    {
        for (_, accounts) in snapshot.plugin_states(policy).accounts() {
            for gauge in accounts.queue_gauges(&snapshot.state) {
                page.put(name, gauge);
            }
        }
    }
    let mut registry = Registry::default();
    for (name, (help, family)) in page.families {
        registry.register(name, help, family);
    }
    let left_out: Gauge<u64, AtomicU64> = Gauge::default();
    left_out.set(u64::try_from(page.omitted).unwrap_or(u64::MAX));
    let about = "Series of queues that are left out of the page";
    registry.register("pumice_queue_series_omitted", about, left_out);
    encode_registry(text, &registry)
}
