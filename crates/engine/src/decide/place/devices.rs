//! Devices that tasks get: chosen by the policy, or by default the devices with the least sufficient free capacity.

use std::sync::Arc;

use crate::devices::{DeviceKinds, DeviceMask, DeviceNode, DevicePick, pick_devices};
use crate::model::{ClusterState, DeviceQuery, NodeEntry, NodeSlot, ResourceId, TaskRecord, TaskStatus};
use crate::plugin::Plugin;
use crate::policy::Policy;

/// Choice of devices for equal tasks under a policy.
#[derive(Debug)]
pub(crate) struct DeviceChooser {
    pick: DevicePick,
    /// Plugins that may name a device by their score.
    scorers: Vec<Arc<dyn Plugin>>,
    query: DeviceQuery,
}

impl DeviceChooser {
    /// Choice for a task; `None`: it asks for no device, or no plugin of the policy picks any.
    pub(crate) fn of(policy: &Policy, task: &TaskRecord) -> Option<Self> {
        let request = task.device_request()?.clone();
        let cpu = task.requests.get(ResourceId::CPU).unwrap_or(0) as f64;
        let pick = policy.device_pick()?;
        let scorers = if pick == DevicePick::Score {
            let own = policy.hooks().scorers.iter().map(|hook| Arc::clone(&hook.plugin));
            own.filter(|plugin| plugin.device_scorer().is_some()).collect()
        } else {
            Vec::new()
        };
        Some(Self {
            pick,
            scorers,
            query: DeviceQuery::new(cpu, Some(request)),
        })
    }

    /// Devices of the next task on a node; 0: there are not enough, or the node reports none.
    pub(crate) fn choose(&self, entry: &NodeEntry, after_release: bool) -> DeviceMask {
        let Some(devices) = entry.record.devices() else {
            return 0;
        };
        if self.query.named_devices() != 0 {
            return self.query.named_devices();
        }
        let free = entry.free_devices(after_release);
        let free_cpu = entry.exact_idle(ResourceId::CPU, after_release);
        let scores = self.scorers.iter().filter_map(|plugin| plugin.device_scorer());
        self.query.on_node(Some(devices), |task| {
            let node = DeviceNode {
                free_cpu: i64::try_from(free_cpu).unwrap_or(i64::MAX),
                free: &free,
                model: &devices.model,
                kinds: DeviceKinds::NONE,
                identity: entry.identity(),
            };
            let fits = task.fits(&node);
            let named = scores
                .filter(|_| fits && task.is_share())
                .find_map(|scorer| scorer.score(task, &node).device);
            pick_devices(self.pick, task, &free, named).unwrap_or(0)
        })
    }
}

impl ClusterState {
    /// Devices that a task gets by default on a node: its assigned devices, or the devices with the least sufficient
    /// free capacity. 0: the task requests no devices, or the node has too few.
    pub(crate) fn devices_for(
        &self,
        task: &TaskRecord,
        slot: NodeSlot,
        status: TaskStatus,
        given: DeviceMask,
    ) -> DeviceMask {
        let Some((request, entry)) = task.device_request().zip(self.node(slot)) else {
            return 0;
        };
        if given != 0 {
            return given;
        }
        let request = crate::model::DeviceRequest {
            assigned: 0,
            ..request.clone()
        };
        let query = DeviceQuery::new(0.0, Some(request));
        let chooser = DeviceChooser {
            pick: DevicePick::Tightest,
            scorers: Vec::new(),
            query,
        };
        chooser.choose(entry, status == TaskStatus::Pipelined)
    }
}
