//! Stored node: its record, the exact usage by tasks, and the values that columns show of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount_delta::AmountDelta;
use super::amounts::{ResourceAmounts, ResourceId, ResourceTotals, THOUSAND};
use super::column::NodeVector;
use super::device_usage::DeviceUsage;
use super::pod_sum_delta::PodSumDelta;
use super::port_counts::PortCounts;
use super::records::{NodeRecord, TaskRecord, TaskStatus};
use super::stored::RecordProblems;
use crate::held_bytes::held_bytes;
use crate::policy::Compatibility;

/// Exact usage of a node by tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// Requests of all tasks on the node except pipelined ones.
    pub used: ResourceTotals,
    /// Requests of tasks that are being released.
    pub releasing: ResourceTotals,
    /// Requests of pipelined tasks, which wait for releasing amounts.
    pub pipelined: ResourceTotals,
    /// Delta of Kubernetes' counting of `used`.
    pub kubernetes_delta: AmountDelta,
    /// Differences of the sums over pods that scores of Kubernetes read.
    pub pod_sums: PodSumDelta,
    /// Ports that tasks take, each with the number of tasks.
    pub ports: PortCounts,
    /// Ports of tasks that are being released.
    pub releasing_ports: PortCounts,
    /// Devices that tasks have.
    pub devices: DeviceUsage,
}

held_bytes! { NodeUsage { used, releasing, pipelined, kubernetes_delta, pod_sums, ports, releasing_ports, devices } }

impl NodeUsage {
    /// Adds a task that is on the node in its status, or takes off one that was added in this status.
    pub fn count_task(&mut self, task: &TaskRecord, adds: bool) {
        self.pod_sums.count_task(task, adds);
        self.ports.count_task(task, adds);
        self.devices.count_task(task, adds);
        if task.status == TaskStatus::Releasing {
            self.releasing_ports.count_task(task, adds);
        }
        self.each(task.status, |totals| totals.count_all(&task.requests, adds));
        if task.status.is_used() {
            self.kubernetes_delta.count_task(task, adds);
        }
    }

    /// True if the node has no usage by tasks.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
            && self.releasing.is_empty()
            && self.pipelined.is_empty()
            && self.kubernetes_delta.is_empty()
            && self.pod_sums.is_empty()
            && self.ports.is_empty()
            && self.devices.is_empty()
    }

    fn each(&mut self, status: TaskStatus, mut change: impl FnMut(&mut ResourceTotals)) {
        match status {
            TaskStatus::Pending | TaskStatus::Succeeded | TaskStatus::Failed => {}
            TaskStatus::Pipelined => change(&mut self.pipelined),
            TaskStatus::Releasing => {
                change(&mut self.used);
                change(&mut self.releasing);
            }
            TaskStatus::Allocated
            | TaskStatus::Binding
            | TaskStatus::Bound
            | TaskStatus::Running
            | TaskStatus::Unknown => change(&mut self.used),
        }
    }
}

/// Node vectors of a session under `compatibility: upstream`, computed as the reference computes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamNode {
    /// Idle amounts, with the reference's omissions.
    pub idle: BTreeMap<ResourceId, i128>,
    /// Used amounts.
    pub used: BTreeMap<ResourceId, i128>,
    /// Releasing amounts.
    pub releasing: BTreeMap<ResourceId, i128>,
    /// Pipelined amounts.
    pub pipelined: BTreeMap<ResourceId, i128>,
    /// Delta of Kubernetes' counting of `used`.
    pub kubernetes_delta: AmountDelta,
    /// Number of pods for filters of Kubernetes: an evicted pod is removed at once.
    pub pods: i128,
    /// Host ports of the pods.
    pub ports: PortCounts,
    /// Differences of the sums over pods for scores of Kubernetes: an evicted pod is removed at once.
    pub pod_sums: PodSumDelta,
    /// Names of pods on the node that filters and scores of Kubernetes do not see.
    pub lost_pods: Vec<Arc<str>>,
}

held_bytes! { UpstreamNode { idle, used, releasing, pipelined, kubernetes_delta, ports, pod_sums, lost_pods; pods } }

/// Stored node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEntry {
    /// Newest good record of the node.
    pub record: Arc<NodeRecord>,
    /// Source that owns the record.
    pub source: Arc<str>,
    /// Usage by tasks.
    pub usage: NodeUsage,
    /// Problems of a newer record that was rejected; `record` is the last valid one.
    pub invalid: Option<RecordProblems>,
    /// Vectors of the reference, from the first change of the node in a session under `compatibility: upstream`.
    pub upstream: Option<Arc<UpstreamNode>>,
}

held_bytes! { NodeEntry { record, usage, upstream; source, invalid } }

impl NodeEntry {
    /// True if the node may take a new task.
    pub fn is_placeable(&self) -> bool {
        self.is_usable() && !self.record.unschedulable
    }

    /// True if the node is ready and its newest record was accepted, whether or not it is cordoned.
    pub fn is_usable(&self) -> bool {
        self.record.is_ready(Compatibility::Corrected) && self.is_valid()
    }

    /// True if the newest record of the node is in force.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_none()
    }

    /// True if tasks on the node take ports.
    pub fn has_ports(&self) -> bool {
        match &self.upstream {
            Some(own) => !own.ports.is_empty(),
            None => !self.usage.ports.is_empty(),
        }
    }

    /// True if the reference's idle + releasing − pipelined has no entry for a resource: the resource is a scalar, and
    /// neither idle nor releasing has any scalar to subtract from.
    pub(crate) fn lacks_future(&self, id: ResourceId) -> bool {
        let is_scalar = |id: &ResourceId| *id != ResourceId::CPU && *id != ResourceId::MEMORY;
        let scalarless = |own: &Arc<UpstreamNode>| !own.idle.keys().chain(own.releasing.keys()).any(is_scalar);
        is_scalar(&id) && self.upstream.as_ref().is_some_and(scalarless)
    }

    /// Resources in any vector; a resource may repeat.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        let given = [
            Some(&self.record.allocatable),
            self.record.oversubscription.as_ref(),
            self.record.unattributed_used.as_ref(),
            self.record.unattributed_nonzero_used.as_ref(),
        ];
        let tasks = [&self.usage.used, &self.usage.releasing, &self.usage.pipelined];
        let upstream = self.upstream.iter().flat_map(|own| {
            [&own.idle, &own.used, &own.releasing, &own.pipelined]
                .into_iter()
                .flat_map(|vector| vector.keys().copied())
                .chain(own.kubernetes_delta.resources())
        });
        let given = given
            .into_iter()
            .flatten()
            .flat_map(|amounts| amounts.iter().map(|(id, _)| id));
        given
            .chain(tasks.into_iter().flat_map(|totals| totals.iter().map(|(id, _)| id)))
            .chain(self.usage.kubernetes_delta.resources())
            .chain(upstream)
    }

    /// Delta of Kubernetes' counting of the node's usage, resource by resource.
    pub(crate) fn kubernetes_delta(&self) -> AmountDelta {
        match &self.upstream {
            Some(own) => own.kubernetes_delta.clone(),
            None => AmountDelta::of_node(&self.record).plus(&self.usage.kubernetes_delta),
        }
    }

    /// Allocatable amount in Kubernetes' integers: thousandths of cpu, whole units of anything else.
    pub(crate) fn integer_allocatable(&self, id: ResourceId) -> i128 {
        let whole = |amounts: Option<&ResourceAmounts>| {
            amounts
                .and_then(|amounts| amounts.whole_units(id))
                .map_or(0, i128::from)
        };
        whole(Some(&self.record.allocatable)) + whole(self.record.oversubscription.as_ref())
    }

    /// Used amount in the same integers; non-zero requests for cpu and memory. `delta` is [`Self::kubernetes_delta`].
    pub(crate) fn integer_used(&self, id: ResourceId, delta: &AmountDelta) -> i128 {
        let counted = self.exact(id, NodeVector::Used).unwrap_or(0) + delta.get(id);
        if id.has_kubernetes_unit() {
            counted
        } else {
            counted / i128::from(THOUSAND)
        }
    }

    /// Exact amount of a resource in a vector; `None`: the node does not have it there.
    pub fn exact(&self, id: ResourceId, vector: NodeVector) -> Option<i128> {
        let both = |a: Option<i128>, b: Option<i128>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        let given = |amounts: Option<&ResourceAmounts>| amounts.and_then(|amounts| amounts.get(id)).map(i128::from);
        if let (Some(own), false) = (&self.upstream, matches!(vector, NodeVector::Allocatable)) {
            return match vector {
                NodeVector::Used => own.used.get(&id),
                NodeVector::Releasing => own.releasing.get(&id),
                NodeVector::Pipelined => own.pipelined.get(&id),
                NodeVector::Idle | NodeVector::Allocatable => own.idle.get(&id),
            }
            .copied();
        }
        match vector {
            NodeVector::Allocatable => both(
                given(Some(&self.record.allocatable)),
                given(self.record.oversubscription.as_ref()),
            ),
            NodeVector::Used => both(given(self.record.unattributed_used.as_ref()), self.usage.used.get(id)),
            NodeVector::Releasing => self.usage.releasing.get(id),
            NodeVector::Pipelined => self.usage.pipelined.get(id),
            NodeVector::Idle => None,
        }
    }

    /// Idle amount of a resource. With `after_release`: once all releasing tasks have ended and all pipelined ones have come.
    pub(crate) fn exact_idle(&self, id: ResourceId, after_release: bool) -> i128 {
        let exact = |vector| self.exact(id, vector).unwrap_or(0);
        let idle = match self.upstream {
            Some(_) => exact(NodeVector::Idle),
            None => exact(NodeVector::Allocatable) - exact(NodeVector::Used),
        };
        if after_release {
            idle + exact(NodeVector::Releasing) - exact(NodeVector::Pipelined)
        } else {
            idle
        }
    }

    /// Same amount as a float, which kernels read.
    pub(crate) fn value(&self, id: ResourceId, vector: NodeVector) -> Option<f64> {
        self.exact(id, vector).map(|amount| amount as f64)
    }
}
