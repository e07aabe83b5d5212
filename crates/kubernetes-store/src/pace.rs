//! Pace of writes: delays that keep a server within its limits of writes and bytes per second.

use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use tokio::time::Instant;

use crate::WriteRates;

/// Seconds of writes that may come at once after a pause.
const WRITES_BURST: f64 = 1.0;
/// Seconds of bytes that may come at once after a pause: a snapshot is some megabytes.
const BYTES_BURST: f64 = 8.0;

/// Budget that fills at a rate, up to a burst. It may be overdrawn; later writes then wait.
#[derive(Debug)]
struct RateBudget {
    per_second: f64,
    burst: f64,
    /// Amount that is there; negative: it was taken ahead.
    amount: f64,
    at: Option<Instant>,
}

impl RateBudget {
    fn new(per_second: f64, seconds: f64) -> Self {
        let burst = (per_second * seconds).max(1.0);
        Self {
            per_second,
            burst,
            amount: burst,
            at: None,
        }
    }

    /// Takes an amount. Returns the time until it is there.
    fn take(&mut self, amount: f64, now: Instant) -> Duration {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        let filled = passed.as_secs_f64().mul_add(self.per_second, self.amount);
        self.amount = filled.min(self.burst) - amount;
        let missing = (-self.amount).max(0.0) / self.per_second;
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }
}

/// Pace of all writes of one server.
#[derive(Debug)]
pub(crate) struct WritePace(ShortLock<(RateBudget, RateBudget)>);

impl WritePace {
    pub(crate) fn new(rates: WriteRates) -> Self {
        let writes = RateBudget::new(rates.writes_per_second, WRITES_BURST);
        let bytes = RateBudget::new(rates.bytes_per_second, BYTES_BURST);
        Self(ShortLock::new((writes, bytes)))
    }

    /// Waits until a write of this many bytes may go.
    pub(crate) async fn wait(&self, bytes: usize) {
        let bytes = bytes as f64;
        let now = Instant::now();
        let wait = self
            .0
            .with(|(writes, volume)| writes.take(1.0, now).max(volume.take(bytes, now)));
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fills_at_its_rate_up_to_its_burst() {
        let (start, mut budget) = (Instant::now(), RateBudget::new(10.0, 1.0));
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        for _ in 0..10 {
            assert_eq!(budget.take(1.0, at(0)), Duration::ZERO);
        }
        assert_eq!(budget.take(1.0, at(0)), Duration::from_millis(100));
        assert_eq!(budget.take(1.0, at(0)), Duration::from_millis(200));
        // The two that waited are paid for after 200 ms; a long pause gives the burst, and no more.
        assert_eq!(budget.take(1.0, at(300)), Duration::ZERO);
        assert_eq!(budget.take(10.0, at(60_000)), Duration::ZERO);
        assert_eq!(budget.take(1.0, at(60_000)), Duration::from_millis(100));
    }
}
