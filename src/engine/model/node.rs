//! A node as stored: its record, the exact usage by tasks, and what columns show of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount_delta::AmountDelta;
use super::amounts::{ResourceAmounts, ResourceId, ResourceTotals, THOUSAND};
use super::column::NodeVector;
use super::records::{NodeRecord, TaskRecord, TaskStatus};
use super::stored::RecordProblems;

/// What tasks take of a node, exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// Of all tasks on the node but pipelined ones.
    pub used: ResourceTotals,
    /// Of tasks that are being released.
    pub releasing: ResourceTotals,
    /// Of tasks that wait for what is being released.
    pub pipelined: ResourceTotals,
    /// What `used` counts more in Kubernetes.
    pub kubernetes_delta: AmountDelta,
}

impl NodeUsage {
    /// Counts a task in its status.
    pub fn add(&mut self, task: &TaskRecord) {
        self.each(task.status, |totals| totals.add(&task.requests));
        if task.status.is_used() {
            self.kubernetes_delta.add_task(task);
        }
    }

    /// Takes a task out that was counted in this status.
    pub fn subtract(&mut self, task: &TaskRecord) {
        self.each(task.status, |totals| totals.subtract(&task.requests));
        if task.status.is_used() {
            self.kubernetes_delta.subtract_task(task);
        }
    }

    /// True if no task counts.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
            && self.releasing.is_empty()
            && self.pipelined.is_empty()
            && self.kubernetes_delta.is_empty()
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

/// Node vectors kept as the reference keeps them, for sessions under `compatibility: upstream`.
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
    /// What `used` counts more in Kubernetes.
    pub kubernetes_delta: AmountDelta,
}

/// A node as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEntry {
    /// The record.
    pub record: Arc<NodeRecord>,
    /// Its owner.
    pub source: Arc<str>,
    /// What tasks take of it.
    pub usage: NodeUsage,
    /// Faults of a newer record that was refused; this one is the last good one.
    pub invalid: Option<RecordProblems>,
    /// In a session under `compatibility: upstream`, once touched.
    pub upstream: Option<Arc<UpstreamNode>>,
}

impl NodeEntry {
    /// True if something new may be placed here.
    pub fn is_placeable(&self) -> bool {
        self.record.ready != Some(false) && !self.record.unschedulable && self.invalid.is_none()
    }

    /// Resources in any vector; may repeat.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
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

    /// What a node vector counts more in Kubernetes, resource by resource.
    pub(crate) fn kubernetes_delta(&self) -> AmountDelta {
        match &self.upstream {
            Some(own) => own.kubernetes_delta.clone(),
            None => AmountDelta::of_node(&self.record).plus(&self.usage.kubernetes_delta),
        }
    }

    /// The amount that pods may use as Kubernetes counts: thousandths of cpu, whole units of anything else.
    pub(crate) fn integer_allocatable(&self, id: ResourceId) -> i128 {
        let whole = |amounts: Option<&ResourceAmounts>| {
            amounts
                .and_then(|amounts| amounts.whole_units(id))
                .map_or(0, i128::from)
        };
        whole(Some(&self.record.allocatable)) + whole(self.record.oversubscription.as_ref())
    }

    /// The amount that is used, likewise; non-zero requests for cpu and memory. `surplus`: [`Self::surplus`].
    pub(crate) fn integer_used(&self, id: ResourceId, surplus: &AmountDelta) -> i128 {
        let counted = self.exact(id, NodeVector::Used).unwrap_or(0) + surplus.get(id);
        if id.has_kubernetes_unit() {
            counted
        } else {
            counted / i128::from(THOUSAND)
        }
    }

    /// The exact amount of a resource in a vector, if the node has it there.
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

    /// The same as the kernels see it.
    pub(crate) fn value(&self, id: ResourceId, vector: NodeVector) -> Option<f64> {
        self.exact(id, vector).map(|amount| amount as f64)
    }
}
