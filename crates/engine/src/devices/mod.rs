//! Devices of nodes, such as GPUs that tasks share: requests of tasks, free devices of nodes, and the choice of
//! devices.

pub mod fragmentation;
mod scorer;
mod sigmoid;
#[cfg(test)]
mod tests;
mod usable;

use std::sync::Arc;

use smallvec::SmallVec;

pub use scorer::{DeviceScore, DeviceScorer, scale};

/// Thousandths of an unused device.
pub const WHOLE_DEVICE: i32 = 1000;
/// Largest number of devices of a node: a set of them is one word.
pub const MAX_DEVICES: usize = 64;

/// Set of devices of a node: bit i is the device with index i.
pub type DeviceMask = u64;

/// Free thousandths of each device of a node, by index.
pub type FreeDevices = SmallVec<[i32; 8]>;

/// Node as scores about devices read it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceNode<'a> {
    /// Free cpu, in thousandths.
    pub free_cpu: i64,
    /// Free thousandths of each device, by index.
    pub free: &'a [i32],
    /// Model of the devices; empty: not known.
    pub model: &'a str,
    /// Kinds of the tasks with devices on the node.
    pub kinds: DeviceKinds,
    /// Number that identifies the node. Only random scores read it.
    pub identity: u64,
}

impl DeviceNode<'_> {
    /// Free thousandths of all devices together.
    pub fn idle(&self) -> i64 {
        self.free.iter().map(|free| i64::from(*free)).sum()
    }

    /// Number of unused devices.
    pub fn whole_devices(&self) -> i64 {
        self.free.iter().map(|free| i64::from(*free == WHOLE_DEVICE)).sum()
    }
}

/// Set of kinds of tasks with devices: those with a share of one device, those with one whole device, with two, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceKinds(u128);

impl DeviceKinds {
    /// Set without a kind.
    pub const NONE: Self = Self(0);

    /// Kind of a task; the empty set for one without devices.
    pub fn of(count: u32, milli: i32) -> Self {
        match (count, milli < WHOLE_DEVICE) {
            (0, _) => Self::NONE,
            (1, true) => Self(1),
            (count, _) => Self(1 << count.min(127)),
        }
    }

    /// Kinds of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the sets have a kind in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Number of kinds.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Part of a task that scores about devices read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceTask {
    /// Requested cpu, in thousandths.
    pub cpu: i64,
    /// Number of devices; 0: the task asks for none.
    pub count: u32,
    /// Thousandths that it asks of each of them.
    pub milli: i32,
    /// Models that would do; empty: any.
    pub models: Arc<[Arc<str>]>,
}

impl DeviceTask {
    /// True if the task asks for a part of one device.
    pub fn is_share(&self) -> bool {
        self.count == 1 && self.milli < WHOLE_DEVICE
    }

    /// Thousandths of all devices of the task together.
    pub fn total(&self) -> i64 {
        i64::from(self.count) * i64::from(self.milli)
    }

    /// Kind of the task.
    pub fn kind(&self) -> DeviceKinds {
        DeviceKinds::of(self.count, self.milli)
    }

    /// True if devices of this model would do.
    pub fn accepts(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|own| **own == *model)
    }

    /// True if a node has enough free devices of an accepted model. Devices of one task differ from each other.
    pub fn fits(&self, node: &DeviceNode<'_>) -> bool {
        if self.count == 0 {
            return true;
        }
        let enough = node.free.iter().filter(|free| **free >= self.milli).count();
        enough >= self.count as usize && self.accepts(node.model)
    }
}

/// Rule by which a node's devices are chosen for shares. Whole devices are always the free ones with the lowest indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevicePick {
    /// Device that the policy's scores name, else the tightest.
    #[default]
    Score,
    /// Device with the least that is enough, of equals the lowest index.
    Tightest,
    /// Device with most left, of equals the lowest index.
    Widest,
    /// Device with the lowest index.
    First,
}

/// Devices that a task gets from these free devices. `scored` is the device that a score names. `None`: too few are
/// free.
pub fn pick_devices(pick: DevicePick, task: &DeviceTask, free: &[i32], scored: Option<u8>) -> Option<DeviceMask> {
    if task.count == 0 {
        return Some(0);
    }
    if let (DevicePick::Score, true, Some(device)) = (pick, task.is_share(), scored) {
        let has_enough = free.get(usize::from(device)).is_some_and(|free| *free >= task.milli);
        return has_enough.then(|| 1 << device.min(63));
    }
    let numbered = free.iter().copied().enumerate().take(MAX_DEVICES);
    let mut enough: SmallVec<[(i32, usize); 8]> = numbered
        .filter(|(_, free)| *free >= task.milli)
        .map(|(index, free)| match pick {
            _ if task.milli >= WHOLE_DEVICE => (0, index),
            DevicePick::Score | DevicePick::Tightest => (free, index),
            DevicePick::Widest => (-free, index),
            DevicePick::First => (0, index),
        })
        .collect();
    if enough.len() < task.count as usize {
        return None;
    }
    enough.sort_unstable();
    let chosen = enough.iter().take(task.count as usize);
    Some(chosen.fold(0, |mask, (_, index)| mask | 1 << index))
}

/// Subtracts a task's thousandths from its devices.
pub fn take_devices(free: &mut [i32], devices: DeviceMask, milli: i32) {
    for (index, free) in free.iter_mut().enumerate().take(MAX_DEVICES) {
        if devices >> index & 1 == 1 {
            *free -= milli;
        }
    }
}

/// Indices of a set of devices, in order.
pub fn device_indices(devices: DeviceMask) -> impl Iterator<Item = u32> {
    let mut left = devices;
    std::iter::from_fn(move || {
        let index = left.trailing_zeros();
        left &= left.checked_sub(1)?;
        Some(index)
    })
}
