//! Devices of a node that tasks use, and the devices that a task has.

use std::sync::Arc;

use super::devices::{DeviceRequest, NodeDevices, milli_on};
use super::key_counts::KeyCounts;
use super::records::{TaskRecord, TaskStatus};
use crate::devices::{
    DeviceKinds, DeviceMask, DevicePick, DeviceTask, FreeDevices, WHOLE_DEVICE, device_indices, pick_devices,
    take_devices,
};
use crate::held_bytes::held_bytes;

/// Use of a node's devices by one task, or by several equal ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceUse {
    /// True if the task is being released.
    releasing: bool,
    /// Devices that the task has; 0: not known.
    assigned: DeviceMask,
    count: u32,
    milli: u32,
    memory_mib: u32,
}

held_bytes! { plain DeviceUse }

impl DeviceUse {
    /// Use of a task that is on a node; `None`: it uses no device.
    fn of(task: &TaskRecord) -> Option<Self> {
        let request = task.device_request()?;
        task.status.is_on_node().then(|| Self {
            releasing: task.status == TaskStatus::Releasing,
            assigned: request.assigned,
            count: request.count,
            milli: request.milli,
            memory_mib: request.memory_mib,
        })
    }

    fn milli_of(&self, device_memory: u32) -> i32 {
        milli_on(self.milli, self.memory_mib, device_memory)
    }
}

/// Uses of a node's devices with the number of tasks of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceUsage(KeyCounts<DeviceUse>);

held_bytes! { DeviceUsage { 0 } }

impl DeviceUsage {
    /// Adds the devices of a task that is on a node, or takes them off again.
    pub fn count_task(&mut self, task: &TaskRecord, adds: bool) {
        if let Some(own) = DeviceUse::of(task) {
            self.0.count(&own, adds);
        }
    }

    /// True if no device is used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Kinds of the tasks.
    pub fn kinds(&self, devices: &NodeDevices) -> DeviceKinds {
        self.0.iter().fold(DeviceKinds::NONE, |kinds, (own, _)| {
            kinds.union(DeviceKinds::of(own.count, own.milli_of(devices.memory_mib)))
        })
    }

    /// Free thousandths of each device. Tasks with unknown devices are charged, largest first, to the devices with the
    /// least sufficient free capacity, or with the most free capacity if none suffices. With `after_release`, releasing
    /// tasks are treated as ended.
    pub fn free(&self, devices: &NodeDevices, after_release: bool) -> FreeDevices {
        let mut free = devices.unused();
        let mut unknown: Vec<(&DeviceUse, u32)> = Vec::new();
        for (own, times) in self.0.iter().filter(|(own, _)| !(after_release && own.releasing)) {
            if own.assigned == 0 {
                unknown.push((own, times));
                continue;
            }
            let milli = own.milli_of(devices.memory_mib);
            let times = i32::try_from(times).unwrap_or(i32::MAX);
            for device in device_indices(own.assigned) {
                if let Some(free) = free.get_mut(device as usize) {
                    *free = free.saturating_sub(milli.saturating_mul(times)).max(-WHOLE_DEVICE);
                }
            }
        }
        unknown.sort_by_key(|(own, _)| std::cmp::Reverse((own.milli_of(devices.memory_mib), own.count)));
        for (own, times) in unknown {
            (0..times.min(MAX_UNKNOWN)).for_each(|_| take_unknown(&mut free, own, devices.memory_mib));
        }
        for free in &mut free {
            *free = (*free).max(0);
        }
        free
    }
}

/// Number of equal tasks with unknown devices after which a node is full in any case: each takes a thousandth or more.
const MAX_UNKNOWN: u32 = 64_000;

fn take_unknown(free: &mut FreeDevices, own: &DeviceUse, memory_mib: u32) {
    let task = DeviceTask {
        count: own.count,
        milli: own.milli_of(memory_mib),
        ..DeviceTask::default()
    };
    if let Some(chosen) = pick_devices(DevicePick::Tightest, &task, free, None) {
        return take_devices(free, chosen, task.milli);
    }
    let mut widest: Vec<usize> = (0..free.len()).collect();
    widest.sort_by_key(|index| (std::cmp::Reverse(free.get(*index).copied()), *index));
    for index in widest.into_iter().take(own.count as usize) {
        if let Some(free) = free.get_mut(index) {
            *free = (*free - task.milli).max(0);
        }
    }
}

impl TaskRecord {
    /// Devices that the task requests.
    pub fn device_request(&self) -> Option<&DeviceRequest> {
        self.constraints.as_ref()?.devices.as_ref()
    }

    /// Devices that the task has. 0: none, or unknown.
    pub fn assigned_devices(&self) -> DeviceMask {
        self.device_request().map_or(0, |request| request.assigned)
    }

    /// Assigns these devices to the task, if it requests devices and has other ones.
    pub fn assign_devices(&mut self, devices: DeviceMask) {
        if self.device_request().is_none_or(|request| request.assigned == devices) {
            return;
        }
        let constraints = self.constraints.as_mut().map(Arc::make_mut);
        if let Some(request) = constraints.and_then(|own| own.devices.as_mut()) {
            request.assigned = devices;
        }
    }
}
