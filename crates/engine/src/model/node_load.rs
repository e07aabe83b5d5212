//! Measured load of a node.

use crate::held_bytes::held_bytes;

/// Measured load of a node: averages over the last ten minutes.
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
}

held_bytes! { plain NodeLoad }
