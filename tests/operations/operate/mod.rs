//! Expectations of operators: settings, reloads, metrics, and a server that stays responsive.

mod alerts;
mod audit_records;
mod chart;
mod chart_memory;
mod connection_age;
mod expectations;
mod forgetting;
mod load;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod process_metrics;
mod prometheus;
mod reload;
mod returning;
mod settings;
mod sockets;
mod traces;
mod watching;

use std::path::PathBuf;

use crate::support::{
    TestDirectory, cluster, document, fetch, limit_of, metric_value, program, reported_limits, score_request, until,
};

/// Root of the repository.
fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
