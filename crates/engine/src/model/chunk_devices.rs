//! Devices of a chunk's nodes, as filters and scores about devices read them.

use std::sync::Arc;

use super::amounts::ResourceId;
use super::chunk::NodeChunk;
use super::class::TaskClass;
use super::column::ChunkColumn;
use super::devices::{DeviceRequest, NodeDevices};
use super::node::NodeEntry;
use crate::devices::{DeviceKinds, DeviceMask, DeviceNode, DeviceTask, FreeDevices};

/// Request of a class for devices.
#[derive(Clone, Debug, Default)]
pub struct DeviceQuery {
    /// Task as scores read it, on nodes that tell no memory.
    task: DeviceTask,
    /// Request of the class; `None`: it asks for no device.
    request: Option<DeviceRequest>,
}

impl DeviceQuery {
    /// Query of a class.
    pub fn of(class: &TaskClass) -> Self {
        let cpu = class.amount(ResourceId::CPU);
        Self::new(cpu, class.constraints.as_ref().and_then(|own| own.devices.clone()))
    }

    /// Query of a task with this cpu, in thousandths.
    #[expect(clippy::cast_possible_truncation, reason = "requests are far below 2^53")]
    pub fn new(cpu: f64, request: Option<DeviceRequest>) -> Self {
        let task = DeviceTask {
            cpu: cpu as i64,
            count: request.as_ref().map_or(0, |own| own.count),
            milli: request.as_ref().map_or(0, |own| own.milli_of(0)),
            models: request
                .as_ref()
                .map(|own| Arc::from(own.models.as_slice()))
                .unwrap_or_default(),
        };
        Self { task, request }
    }

    /// True if the class requests devices.
    pub fn asks(&self) -> bool {
        self.request.is_some()
    }

    /// Devices that the task requires by number. 0: any devices.
    pub fn named_devices(&self) -> DeviceMask {
        self.request.as_ref().map_or(0, |own| own.assigned)
    }

    /// Calls `judge` with the task on a node with these devices.
    pub fn on_node<R>(&self, devices: Option<&NodeDevices>, judge: impl FnOnce(&DeviceTask) -> R) -> R {
        match (&self.request, devices) {
            (Some(request), Some(devices)) if request.memory_mib > 0 => judge(&DeviceTask {
                milli: request.milli_of(devices.memory_mib),
                ..self.task.clone()
            }),
            _ => judge(&self.task),
        }
    }
}

/// Devices of the nodes of one chunk.
#[derive(Debug)]
pub struct ChunkDevices<'a> {
    chunk: &'a NodeChunk,
    free_cpu: ChunkColumn,
    after_release: bool,
    with_identity: bool,
}

impl<'a> ChunkDevices<'a> {
    /// Devices of a chunk. With `after_release` tasks that are being released are gone. Only `with_identity` nodes have
    /// numbers that tell them apart.
    pub fn of(chunk: &'a NodeChunk, after_release: bool, with_identity: bool) -> Self {
        let free_cpu = if after_release {
            chunk.future_idle(ResourceId::CPU)
        } else {
            chunk.idle(ResourceId::CPU)
        };
        Self {
            chunk,
            free_cpu,
            after_release,
            with_identity,
        }
    }

    /// Calls `judge` with a node and with the task on this node. `None`: the node does not exist.
    #[expect(clippy::cast_possible_truncation, reason = "amounts of cpu are far below 2^53")]
    pub fn with_node<R>(
        &self,
        offset: usize,
        query: &DeviceQuery,
        judge: impl FnOnce(&DeviceTask, &DeviceNode<'_>) -> R,
    ) -> Option<R> {
        let entry = self.chunk.entry(offset)?;
        let devices = entry.record.devices();
        let free = entry.free_devices(self.after_release);
        let node = DeviceNode {
            free_cpu: self.free_cpu.values.get(offset).copied().unwrap_or(0.0) as i64,
            free: &free,
            model: devices.map_or("", |devices| &devices.model),
            kinds: devices.map_or(DeviceKinds::NONE, |devices| entry.usage.devices.kinds(devices)),
            identity: if self.with_identity { entry.identity() } else { 0 },
        };
        Some(query.on_node(devices, |task| judge(task, &node)))
    }
}

impl NodeEntry {
    /// Free thousandths of the node's devices; empty: it has none.
    pub fn free_devices(&self, after_release: bool) -> FreeDevices {
        let devices = self.record.devices();
        devices.map_or_else(FreeDevices::new, |devices| {
            self.usage.devices.free(devices, after_release)
        })
    }

    /// Hash (FNV-1a) of the node and its tasks, the seed of random choices on this node.
    pub(crate) fn identity(&self) -> u64 {
        let held = self.usage.used.get(ResourceId::CPU).unwrap_or(0);
        let name = self.record.name.bytes();
        let bytes = name
            .chain(held.to_le_bytes())
            .chain(self.usage.used.records().to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}
