//! Assumed placements: tasks that occupy a node before their source has reported them there.

use std::sync::Arc;

use super::cluster_state::ClusterState;
use super::records::{TaskRecord, TaskStatus};
use super::stored::RecordKind;
use crate::devices::DeviceMask;

impl ClusterState {
    /// True if the task's node is assumed, not reported.
    pub fn is_assumed(&self, task: &str) -> bool {
        self.assumed.contains(task)
    }

    /// Number of tasks whose node is assumed.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// Allocates a task on a node until its record is put again. Returns the previous record. `None`: the task does not
    /// exist, and nothing changes. Empty `devices`: the task gets the devices with the least sufficient free capacity.
    pub fn assume(&mut self, task: &str, node: &Arc<str>, card: &Arc<str>, devices: DeviceMask) -> Option<TaskRecord> {
        let stored = self.tasks().get(task).cloned()?;
        let mut record = TaskRecord {
            status: TaskStatus::Allocated,
            node: Arc::clone(node),
            ..stored.record.clone()
        };
        if record.card != *card {
            record.card = Arc::clone(card);
        }
        if record.device_request().is_some() {
            let slot = self.slot_of(node);
            record.assign_devices(slot.map_or(0, |slot| self.devices_for(&record, slot, record.status, devices)));
        }
        let name = Arc::clone(&record.name);
        self.put_task(record, &stored.source);
        if stored.invalid().is_some() {
            self.set_invalid(RecordKind::Task, task, stored.invalid().cloned());
        }
        self.assumed.insert(name, ());
        Some(stored.record.clone())
    }
}
