//! Devices of nodes, such as GPUs that tasks share, and the requested and assigned devices of tasks.

use std::sync::Arc;

use crate::devices::{DeviceMask, FreeDevices, MAX_DEVICES, WHOLE_DEVICE};

/// Devices of a node: all of one model, numbered from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeDevices {
    /// Model, such as `H100`. Empty: unknown.
    pub model: Arc<str>,
    /// Number of devices, at most [`MAX_DEVICES`].
    pub count: u32,
    /// Memory of each device in MiB, such as 81920. 0: unknown.
    pub memory_mib: u32,
}

impl NodeDevices {
    /// Free devices of an empty node.
    pub(super) fn unused(&self) -> FreeDevices {
        FreeDevices::from_elem(WHOLE_DEVICE, (self.count as usize).min(MAX_DEVICES))
    }
}

/// Devices that a task requests, and its assigned devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRequest {
    /// Number of devices, which differ from each other.
    pub count: u32,
    /// Requested thousandths of each device, 1 … 1000. 0: the share of the device's memory that `memory_mib` is.
    pub milli: u32,
    /// Requested memory of each device in MiB, such as 40960. 0: no requirement.
    pub memory_mib: u32,
    /// Models that would do; empty: any.
    pub models: Vec<Arc<str>>,
    /// Devices that the task has on its node; 0: it has none, or its source does not say which.
    pub assigned: DeviceMask,
}

impl DeviceRequest {
    /// Thousandths of one device on a node whose devices have this memory; above 1000 where one device has too little.
    /// Memory on a node that does not tell its own takes a whole device.
    pub fn milli_of(&self, device_memory: u32) -> i32 {
        milli_on(self.milli, self.memory_mib, device_memory)
    }
}

/// Thousandths of a device with this memory for a request of thousandths, and of memory.
pub(super) fn milli_on(milli: u32, memory_mib: u32, device_memory: u32) -> i32 {
    let whole = WHOLE_DEVICE.cast_unsigned();
    let by_memory = match (memory_mib, device_memory) {
        (0, _) => 0,
        (_, 0) => u64::from(whole),
        (own, all) => (u64::from(own) * u64::from(whole)).div_ceil(u64::from(all)),
    };
    i32::try_from(by_memory.max(u64::from(milli))).unwrap_or(i32::MAX)
}
