//! What was measured: latencies as histograms, failures by code.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::questions::Kind;
use crate::cli::Failure;

/// Longest latency told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Latencies, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

/// Percentiles that are told, with what they are called.
pub(super) const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Latencies {
    fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        histogram
            .map(Latencies)
            .map_err(|error| Failure::said(format!("error: histogram: {error}")))
    }

    fn record(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    fn add(&mut self, other: &Latencies) {
        // All have the same bounds, so that nothing can be out of them.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that so large a part of the calls did not exceed, in seconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 * 1e-9
    }

    /// The longest, in seconds.
    pub(super) fn max(&self) -> f64 {
        self.0.max() as f64 * 1e-9
    }

    /// As if a caller who waited for longer than the median had gone on asking once per median meanwhile.
    pub(super) fn corrected(&self) -> Latencies {
        Latencies(self.0.clone_correct(self.0.value_at_quantile(0.5)))
    }
}

/// Why a call failed: its gRPC code, and a reason if there is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cause {
    pub(super) code: String,
    pub(super) reason: String,
}

/// What was measured.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Of calls that were answered, by question.
    pub(super) answered: BTreeMap<Kind, Latencies>,
    /// Calls that failed, by cause.
    pub(super) failed: BTreeMap<Cause, u64>,
    /// How long after their time calls were begun.
    pub(super) late: Latencies,
    /// When the last call ended.
    pub(super) ended: Option<Instant>,
}

impl Tally {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Tally {
            answered: BTreeMap::new(),
            failed: BTreeMap::new(),
            late: Latencies::new()?,
            ended: None,
        })
    }

    /// Counts a call that was to begin at one time, did begin at another, and ended now.
    pub(super) fn call(
        &mut self,
        kind: Kind,
        [due, begun, ended]: [Instant; 3],
        outcome: Result<(), Cause>,
    ) -> Result<(), Failure> {
        self.ended = self.ended.max(Some(ended));
        self.late.record(begun.saturating_duration_since(due));
        match outcome {
            Ok(()) => {
                let latencies = match self.answered.entry(kind) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Latencies::new()?),
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

    /// Takes in what another caller measured.
    pub(super) fn add(&mut self, other: Tally) {
        self.ended = self.ended.max(other.ended);
        self.late.add(&other.late);
        for (kind, latencies) in other.answered {
            if let Some(own) = self.answered.get_mut(&kind) {
                own.add(&latencies);
            } else {
                self.answered.insert(kind, latencies);
            }
        }
        for (cause, count) in other.failed {
            let own = self.failed.entry(cause).or_default();
            *own = own.saturating_add(count);
        }
    }

    /// Latencies of all questions together.
    pub(super) fn all(&self) -> Result<Latencies, Failure> {
        let mut all = Latencies::new()?;
        for latencies in self.answered.values() {
            all.add(latencies);
        }
        Ok(all)
    }

    /// How many calls failed.
    pub(super) fn failures(&self) -> u64 {
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
    fn time_counts_from_when_a_call_was_due() {
        let start = Instant::now();
        let mut tally = Tally::new().unwrap();
        let [begun, ended] = [start + milliseconds(900), start + milliseconds(1000)];
        tally.call(Kind::Filter, [start, begun, ended], Ok(())).unwrap();
        let all = tally.all().unwrap();
        assert!((all.max() - 1.0).abs() < 1e-3, "{}", all.max());
        assert!((tally.late.max() - 0.9).abs() < 1e-3);
    }

    #[test]
    fn the_correction_puts_in_the_calls_that_a_stall_kept_from_being_made() {
        let mut latencies = Latencies::new().unwrap();
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
    fn tallies_add_up() {
        let start = Instant::now();
        let cause = Cause {
            code: "Unavailable".to_owned(),
            reason: String::new(),
        };
        let mut tally = Tally::new().unwrap();
        for (kind, outcome) in [(Kind::Filter, Ok(())), (Kind::Score, Ok(())), (Kind::Score, Err(cause))] {
            let mut one = Tally::new().unwrap();
            one.call(kind, [start; 3], outcome).unwrap();
            tally.add(one.clone());
            tally.add(one);
        }
        assert_eq!(tally.all().unwrap().count(), 4);
        assert_eq!(tally.failures(), 2);
    }
}
