//! Measured load of a node.

use std::sync::Arc;

use super::ClusterState;
use crate::held_bytes::held_bytes;

/// Measured load of a node: averages over a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// Seconds since 1970 of the measurement; `None`: unknown.
    pub time: Option<i64>,
    /// Load of the CPUs in percent of the node, a finite number.
    pub cpu_percent: f64,
    /// Load of the memory in percent of the node, a finite number.
    pub memory_percent: f64,
    /// CPU of the node in thousandths, of which `cpu_percent` are in use; `None`: the allocatable amount.
    pub cpu_capacity: Option<i64>,
    /// Memory of the node in bytes, likewise.
    pub memory_capacity: Option<i64>,
    /// Period of the averages, such as `5m`; empty: [`NodeLoad::USUAL_PERIOD`].
    pub period: Arc<str>,
}

held_bytes! { NodeLoad { period; time, cpu_percent, memory_percent, cpu_capacity, memory_capacity } }

impl NodeLoad {
    /// Period of the averages that Volcano collects.
    pub const USUAL_PERIOD: &str = "10m";

    /// Seconds after which a measurement is too old.
    const LONGEST_AGE: i64 = 300;

    /// True if it was measured at most five minutes before a time in seconds since 1970.
    pub fn is_recent(&self, now: i64) -> bool {
        self.time
            .is_some_and(|time| now.saturating_sub(time) <= Self::LONGEST_AGE)
    }

    /// True if no node of a state has a measured load.
    pub fn is_missing(cluster_state: &ClusterState) -> bool {
        cluster_state.nodes().all(|(_, entry)| entry.record.load.is_none())
    }

    /// True if the averages are of this period.
    pub fn is_of(&self, period: &str) -> bool {
        let own = if self.period.is_empty() {
            Self::USUAL_PERIOD
        } else {
            &self.period
        };
        own == period
    }
}
