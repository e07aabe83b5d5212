//! Gauge of a number that is not negative.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;

/// Gauge of a number that is not negative.
pub(super) type IntegerGauge = Gauge<u64, AtomicU64>;

/// Number as the value of a gauge.
pub(super) fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
