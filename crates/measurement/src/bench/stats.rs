//! Measurements of a load: latencies as histograms, errors by code.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::queries::{BenchQuery, ErrorCause};
use pumice_console::CommandError;

/// Longest latency that a histogram resolves, in nanoseconds: an hour.
const MAX_LATENCY_NANOS: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Latencies, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct LatencyHistogram(Histogram<u64>);

/// Percentiles of a report, with their names.
pub(super) const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl LatencyHistogram {
    pub(super) fn new() -> Result<Self, CommandError> {
        let histogram = Histogram::new_with_bounds(1, MAX_LATENCY_NANOS, DIGITS);
        histogram
            .map(LatencyHistogram)
            .map_err(|error| CommandError::message(format!("error: histogram: {error}")))
    }

    pub(super) fn record(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn merge(&mut self, other: &LatencyHistogram) {
        // All histograms have the same bounds, so that no value is out of range.
        let _ = self.0.add(&other.0);
    }

    /// Number of latencies.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Latency that this fraction of the calls did not exceed, in seconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 * 1e-9
    }

    /// Longest latency, in seconds.
    pub(super) fn max(&self) -> f64 {
        self.0.max() as f64 * 1e-9
    }

    /// Latencies corrected for coordinated omission. A caller that waited longer than the median is treated as if it
    /// had sent one call per median during the wait. For example, one call of 30 ms with a median of 10 ms becomes
    /// calls of 30, 20 and 10 ms.
    pub(super) fn corrected(&self) -> LatencyHistogram {
        LatencyHistogram(self.0.clone_correct(self.0.value_at_quantile(0.5)))
    }
}

/// Measurements of a caller, or of all callers together.
#[derive(Debug, Clone)]
pub(super) struct CallStats {
    /// Latencies of completed calls, by query.
    pub(super) completed: BTreeMap<BenchQuery, LatencyHistogram>,
    /// Number of failed calls, by cause.
    pub(super) failed: BTreeMap<ErrorCause, u64>,
    /// Delays between the time a call was due and its begin.
    pub(super) start_delay: LatencyHistogram,
    /// `None`: no call has ended.
    pub(super) last_ended: Option<Instant>,
}

impl CallStats {
    pub(super) fn new() -> Result<Self, CommandError> {
        Ok(CallStats {
            completed: BTreeMap::new(),
            failed: BTreeMap::new(),
            start_delay: LatencyHistogram::new()?,
            last_ended: None,
        })
    }

    /// Records a call from its due time and its start. It ends now.
    pub(super) fn record_call(
        &mut self,
        kind: BenchQuery,
        [due, begun, ended]: [Instant; 3],
        outcome: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        self.last_ended = self.last_ended.max(Some(ended));
        self.start_delay.record(begun.saturating_duration_since(due));
        match outcome {
            Ok(()) => {
                let latencies = match self.completed.entry(kind) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => entry.insert(LatencyHistogram::new()?),
                };
                latencies.record(ended.saturating_duration_since(due));
            }
            Err(cause) => {
                let count = self.failed.entry(cause).or_default();
                *count = count.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Adds the measurements of another caller.
    pub(super) fn merge(&mut self, other: CallStats) {
        self.last_ended = self.last_ended.max(other.last_ended);
        self.start_delay.merge(&other.start_delay);
        for (kind, latencies) in other.completed {
            if let Some(own) = self.completed.get_mut(&kind) {
                own.merge(&latencies);
            } else {
                self.completed.insert(kind, latencies);
            }
        }
        for (cause, count) in other.failed {
            let own = self.failed.entry(cause).or_default();
            *own = own.saturating_add(count);
        }
    }

    /// Latencies of all queries together.
    pub(super) fn total_latency(&self) -> Result<LatencyHistogram, CommandError> {
        let mut all = LatencyHistogram::new()?;
        for latencies in self.completed.values() {
            all.merge(latencies);
        }
        Ok(all)
    }

    /// Number of failed calls.
    pub(super) fn failed_count(&self) -> u64 {
        self.failed.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn latency_counts_from_when_a_call_was_due() {
        let start = Instant::now();
        let mut tally = CallStats::new().unwrap();
        let [begun, ended] = [start + milliseconds(900), start + milliseconds(1000)];
        tally
            .record_call(BenchQuery::Filter, [start, begun, ended], Ok(()))
            .unwrap();
        let all = tally.total_latency().unwrap();
        assert!((all.max() - 1.0).abs() < 1e-3, "{}", all.max());
        assert!((tally.start_delay.max() - 0.9).abs() < 1e-3);
    }

    #[test]
    fn correction_adds_the_calls_that_a_stall_prevented() {
        let mut latencies = LatencyHistogram::new().unwrap();
        for _ in 0..1000 {
            latencies.record(milliseconds(1));
        }
        latencies.record(milliseconds(1000));
        let corrected = latencies.corrected();
        assert!(latencies.quantile(0.99) < 0.002, "one of 1001 hardly counts");
        // 1000 calls of 1 ms, and one each that would have waited 1000, 999, … ms.
        assert!((1990..=2001).contains(&corrected.count()), "{}", corrected.count());
        assert!(
            (0.9..=1.0).contains(&corrected.quantile(0.99)),
            "{}",
            corrected.quantile(0.99)
        );
    }

    #[test]
    fn stats_merge() {
        let start = Instant::now();
        let cause = ErrorCause {
            code: "Unavailable".to_owned(),
            reason: String::new(),
        };
        let mut tally = CallStats::new().unwrap();
        for (kind, outcome) in [
            (BenchQuery::Filter, Ok(())),
            (BenchQuery::Score, Ok(())),
            (BenchQuery::Score, Err(cause)),
        ] {
            let mut one = CallStats::new().unwrap();
            one.record_call(kind, [start; 3], outcome).unwrap();
            tally.merge(one.clone());
            tally.merge(one);
        }
        assert_eq!(tally.total_latency().unwrap().count(), 4);
        assert_eq!(tally.failed_count(), 2);
    }
}
