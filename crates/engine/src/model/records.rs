//! Records that sources send: nodes, queues, jobs and tasks.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::amounts::ResourceAmounts;
use super::constraints::{HostPort, NodeDevices, NodeProperties, PodConstraints, Taint};
use super::gang::{GangMember, GangMinimums};
use super::node_groups::QueueAffinity;
use super::node_load::NodeLoad;
use super::pod_identity::PodIdentity;
use super::text_map::TextMap;
use super::uid::{CreationTime, Uid};
use super::unevaluated::UnevaluatedFields;
use crate::held_bytes::held_bytes;
use crate::policy::Compatibility;

/// Record of a node, as its source sent it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRecord {
    /// Name of the node; the key.
    pub name: Arc<str>,
    /// Incarnation; empty: not reported.
    pub uid: Arc<str>,
    /// Seconds since 1970; `None`: not reported.
    pub creation_time: Option<i64>,
    /// Declared labels.
    pub labels: TextMap,
    /// Allocatable amounts as the node reports them.
    pub allocatable: ResourceAmounts,
    /// Amounts added to `allocatable`.
    pub oversubscription: Option<ResourceAmounts>,
    /// Ready condition. `None`: not reported, which is treated as ready.
    pub ready: Option<bool>,
    /// True if the node is cordoned.
    pub unschedulable: bool,
    /// Usage by pods that have no records here, `pods` included.
    pub unattributed_used: Option<ResourceAmounts>,
    /// Same usage in non-zero requests, cpu and memory only.
    pub unattributed_nonzero_used: Option<ResourceAmounts>,
    /// Fields of the node object that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
    /// Taints and images; `None`: the node has none.
    pub properties: Option<Arc<NodeProperties>>,
    /// Measured load; `None`: it is not measured.
    pub load: Option<Arc<NodeLoad>>,
}

held_bytes! {
    interned NodeRecord {
        name, uid, labels, allocatable, oversubscription, unattributed_used, unattributed_nonzero_used,
        unevaluated_fields, properties, load; creation_time, ready, unschedulable
    }
}

impl NodeRecord {
    /// True if the node counts in totals and for its pods. The reference ignores the conditions of nodes, because taints tell
    /// them.
    pub fn is_ready(&self, compatibility: Compatibility) -> bool {
        compatibility.is_upstream() || self.ready != Some(false)
    }

    /// Taints, empty if the record has no properties.
    pub fn taints(&self) -> &[Taint] {
        self.properties.as_ref().map_or(&[], |properties| &properties.taints)
    }

    /// Devices of the node; `None`: none are reported.
    pub fn devices(&self) -> Option<&NodeDevices> {
        self.properties.as_ref()?.devices.as_ref()
    }

    /// True if the node has a taint that rejects pods, other than the taints of cordoned and unready nodes, which
    /// `unschedulable` and `ready` represent.
    pub fn has_rejecting_taint(&self) -> bool {
        let is_carried = |taint: &Taint| match &*taint.key {
            "node.kubernetes.io/unschedulable" => self.unschedulable,
            "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable" => self.ready == Some(false),
            _ => false,
        };
        self.taints().iter().any(|taint| taint.rejects() && !is_carried(taint))
    }

    /// All lists of amounts that the record has.
    pub fn amounts(&self) -> impl Iterator<Item = &ResourceAmounts> {
        let optional = [
            &self.oversubscription,
            &self.unattributed_used,
            &self.unattributed_nonzero_used,
        ];
        std::iter::once(&self.allocatable).chain(optional.into_iter().flatten())
    }
}

/// State of a queue. Only an open queue accepts new jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// State not reported; treated as open.
    #[default]
    Unspecified,
    /// Queue that takes jobs.
    Open,
    /// Queue that takes no jobs.
    Closed,
    /// Queue that takes no new jobs.
    Closing,
    /// Volcano's Unknown.
    Unknown,
}

/// Record of a queue, as its source sent it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueRecord {
    /// Name of the queue; the key.
    pub name: Arc<str>,
    /// Incarnation; empty: not reported.
    pub uid: Arc<str>,
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Declared annotations.
    pub annotations: TextMap,
    /// spec.weight; `None`: 1.
    pub weight: Option<i32>,
    /// spec.priority, larger first.
    pub priority: i32,
    /// status.state.
    pub state: QueueState,
    /// Name of the parent queue; empty: the root.
    pub parent: Arc<str>,
    /// spec.reclaimable; `None`: true.
    pub reclaimable: Option<bool>,
    /// Hard limit of the queue.
    pub capability: Option<ResourceAmounts>,
    /// Amounts that the queue deserves; others may borrow them.
    pub deserved: Option<ResourceAmounts>,
    /// Amounts that no other queue may use.
    pub guarantee: Option<ResourceAmounts>,
    /// Affinity to groups of nodes; `None`: the queue has none of its own.
    pub affinity: Option<Arc<QueueAffinity>>,
}

held_bytes! {
    QueueRecord {
        name, uid, annotations, parent, capability, deserved, guarantee, affinity; creation_time, weight, priority,
        state, reclaimable
    }
}

impl QueueRecord {
    /// All lists of amounts that the record has.
    pub fn amounts(&self) -> impl Iterator<Item = &ResourceAmounts> {
        [&self.capability, &self.deserved, &self.guarantee]
            .into_iter()
            .flatten()
    }
}

/// Phase of a job (`status.phase` of the PodGroup).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobPhase {
    /// Phase not reported.
    #[default]
    Unspecified,
    /// Job that waits for admission.
    Pending,
    /// Job that is admitted and does not run yet.
    Inqueue,
    /// At least `min_member` tasks of the job run.
    Running,
    /// Some tasks of the job run, fewer than `min_member`.
    Unknown,
    /// Job that is done.
    Completed,
}

/// Record of a job (a gang).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRecord {
    /// Key of the job: `namespace/name`.
    pub name: Arc<str>,
    /// Incarnation; empty: not reported.
    pub uid: Arc<str>,
    /// Name of the job's queue.
    pub queue: Arc<str>,
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Priority. The larger priority is served first.
    pub priority: i32,
    /// status.phase.
    pub phase: JobPhase,
    /// Least number of tasks with which the job starts.
    pub min_member: i32,
    /// spec.minResources.
    pub min_resources: Option<ResourceAmounts>,
    /// Declared annotations.
    pub annotations: TextMap,
    /// Minimums for roles and groups. `None`: the job has none.
    pub gang: Option<Arc<GangMinimums>>,
}

held_bytes! {
    JobRecord {
        name, uid, queue, min_resources, annotations, gang; creation_time, priority, phase, min_member
    }
}

impl JobRecord {
    /// All lists of amounts that the record has.
    pub fn amounts(&self) -> impl Iterator<Item = &ResourceAmounts> {
        self.min_resources.iter()
    }

    /// True if two records are equal. Parts that both share are not compared.
    pub fn same_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let Self {
            name,
            uid,
            queue,
            creation_time,
            priority,
            phase,
            min_member,
            min_resources,
            annotations,
            gang,
        } = self;
        let texts = [(name, &other.name), (uid, &other.uid), (queue, &other.queue)];
        let same_annotations = || Arc::ptr_eq(annotations, &other.annotations) || *annotations == other.annotations;
        (creation_time, priority, phase) == (&other.creation_time, &other.priority, &other.phase)
            && (min_member, min_resources) == (&other.min_member, &other.min_resources)
            && *gang == other.gang
            && texts.iter().all(|(own, other)| Arc::ptr_eq(own, other) || own == other)
            && same_annotations()
    }
}

/// Status of a task, in Volcano's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskStatus {
    /// Task without a node.
    #[default]
    Pending,
    /// Task that was given a node in this cycle.
    Allocated,
    /// Task that waits for releasing amounts on its node.
    Pipelined,
    /// Task whose bind was sent.
    Binding,
    /// Task that is bound and does not run yet.
    Bound,
    /// Task that runs.
    Running,
    /// Task that is being deleted.
    Releasing,
    /// Task that ended successfully.
    Succeeded,
    /// The task ended with a failure.
    Failed,
    /// Volcano's Unknown.
    Unknown,
}

impl TaskStatus {
    /// True if the job's `allocated` includes the task.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }

    /// True if the job's `allocated` includes the task, or the task succeeded.
    pub fn is_started(self) -> bool {
        self.is_allocated() || self == Self::Succeeded
    }

    /// True if the task, on a node, uses allocatable amounts there.
    pub fn is_used(self) -> bool {
        self.is_on_node() && self != Self::Pipelined
    }

    /// True if a task with this status occupies its node.
    pub fn is_on_node(self) -> bool {
        !matches!(self, Self::Pending | Self::Succeeded | Self::Failed)
    }
}

/// Part that tasks of one template have in common; their records share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskShape {
    /// Priority. The larger priority is served first.
    pub priority: i32,
    /// True if the task has a scheduling gate.
    pub gated: bool,
    /// status.nominatedNodeName; empty: none.
    pub nominated_node: Arc<str>,
    /// Declared annotations.
    pub annotations: TextMap,
    /// Effective requests, the pod itself included: `pods` is at least 1.
    pub requests: ResourceAmounts,
    /// Effective limits of the pod.
    pub limits: Option<Box<ResourceAmounts>>,
    /// Kubernetes' non-zero requests, cpu and memory only.
    pub nonzero_requests: Option<Box<ResourceAmounts>>,
    /// Amounts that `NodeResourcesFitPlus` adds for this pod.
    pub counted_requests: Option<Box<ResourceAmounts>>,
    /// Non-zero requests of the containers alone, cpu and memory only. `None`: equal to the non-zero requests of the
    /// pod.
    pub container_nonzero_requests: Option<Box<ResourceAmounts>>,
    /// Requests of the containers alone by the rules of kube-scheduler, cpu and memory only. `None`: equal to the
    /// pod's.
    pub container_requests: Option<Box<ResourceAmounts>>,
    /// Requests by the rules of kube-scheduler. `None`: equal to `requests`.
    pub kubernetes_requests: Option<Box<ResourceAmounts>>,
    /// Card of the task's committed placement; empty: none. No source reports it.
    pub card: Arc<str>,
    /// Fields of the pod that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
    /// Constraints on nodes and on other pods; `None`: the pod has none.
    pub constraints: Option<Arc<PodConstraints>>,
    /// Place of the task in its job, and what plugins for gangs read of its pod; `None`: nothing.
    pub gang: Option<Arc<GangMember>>,
}

held_bytes! {
    interned TaskShape {
        nominated_node, annotations, requests, limits, nonzero_requests, counted_requests, container_nonzero_requests,
        container_requests, kubernetes_requests, card, unevaluated_fields, constraints, gang; priority, gated
    }
}

impl TaskShape {
    /// All lists of amounts that the shape has.
    pub fn amounts(&self) -> impl Iterator<Item = &ResourceAmounts> {
        let optional = [
            &self.limits,
            &self.nonzero_requests,
            &self.counted_requests,
            &self.container_nonzero_requests,
            &self.container_requests,
            &self.kubernetes_requests,
        ];
        let optional = optional.into_iter().flatten().map(|amounts| &**amounts);
        std::iter::once(&self.requests).chain(optional)
    }
}

/// Record of a task (a pod): stored, sent in a request, or hypothetical. The fields of its shape read and change like
/// its own. A record is built from [`TaskFields`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRecord {
    /// Key of the task: `namespace/name`; may be empty in queries.
    pub name: Arc<str>,
    /// Incarnation; empty: not reported.
    pub uid: Uid,
    /// Name of the task's job; empty: none.
    pub job: Arc<str>,
    /// Name of the node that the task is on or waits for; empty: none.
    pub node: Arc<str>,
    /// Labels of the pod, which selectors of pods read.
    pub labels: TextMap,
    /// When it was created.
    pub creation_time: CreationTime,
    /// Shape, which tasks of one template share.
    pub shape: Arc<TaskShape>,
    /// Status, which decides whether the task occupies its node.
    pub status: TaskStatus,
}

held_bytes! { TaskRecord { name, uid, job, node, labels, shape; creation_time, status } }

impl TaskRecord {
    /// Ports that the task takes on its node.
    pub fn host_ports(&self) -> &[HostPort] {
        self.constraints
            .as_ref()
            .map_or(&[], |constraints| &constraints.host_ports)
    }

    /// Namespace of the task, from its name or its job: for example `ml` for `ml/bert-0`. `default` for a task in a
    /// query without both.
    pub fn namespace(&self) -> &str {
        let named = self.name.split_once('/').or_else(|| self.job.split_once('/'));
        named.map_or("default", |(namespace, _)| namespace)
    }
}

/// Namespace of a task or job: for example `ml` of `ml/bert-0`; empty of a name without one.
pub fn namespace_of(name: &str) -> &str {
    name.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl Deref for TaskRecord {
    type Target = TaskShape;

    fn deref(&self) -> &TaskShape {
        &self.shape
    }
}

impl DerefMut for TaskRecord {
    fn deref_mut(&mut self) -> &mut TaskShape {
        Arc::make_mut(&mut self.shape)
    }
}

/// All fields of a task, to build a [`TaskRecord`] from.
#[derive(Clone, Debug, Default)]
pub struct TaskFields {
    /// Key of the task: `namespace/name`; may be empty in queries.
    pub name: Arc<str>,
    /// Incarnation; empty: not reported.
    pub uid: Uid,
    /// Name of the task's job; empty: none.
    pub job: Arc<str>,
    /// Priority. The larger priority is served first.
    pub priority: i32,
    /// Status, which decides whether the task occupies its node.
    pub status: TaskStatus,
    /// Name of the node that the task is on or waits for; empty: none.
    pub node: Arc<str>,
    /// True if the task has a scheduling gate.
    pub gated: bool,
    /// status.nominatedNodeName; empty: none.
    pub nominated_node: Arc<str>,
    /// Declared annotations.
    pub annotations: TextMap,
    /// Effective requests, the pod itself included: `pods` is at least 1.
    pub requests: ResourceAmounts,
    /// Effective limits of the pod.
    pub limits: Option<Box<ResourceAmounts>>,
    /// Kubernetes' non-zero requests, cpu and memory only.
    pub nonzero_requests: Option<Box<ResourceAmounts>>,
    /// Amounts that `NodeResourcesFitPlus` adds for this pod.
    pub counted_requests: Option<Box<ResourceAmounts>>,
    /// Non-zero requests of the containers alone, cpu and memory only. `None`: equal to the non-zero requests of the
    /// pod.
    pub container_nonzero_requests: Option<Box<ResourceAmounts>>,
    /// Requests of the containers alone by the rules of kube-scheduler, cpu and memory only. `None`: equal to the
    /// pod's.
    pub container_requests: Option<Box<ResourceAmounts>>,
    /// Requests by the rules of kube-scheduler. `None`: equal to `requests`.
    pub kubernetes_requests: Option<Box<ResourceAmounts>>,
    /// Card of the task's committed placement; empty: none. No source reports it.
    pub card: Arc<str>,
    /// Fields of the pod that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
    /// Constraints on nodes and on other pods; `None`: the pod has none.
    pub constraints: Option<Arc<PodConstraints>>,
    /// Labels of the pod, which selectors of pods read.
    pub labels: TextMap,
    /// Place of the task in its job, and what plugins for gangs read of its pod; `None`: nothing.
    pub gang: Option<Arc<GangMember>>,
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
}

impl From<TaskFields> for TaskRecord {
    fn from(fields: TaskFields) -> Self {
        let TaskFields {
            name,
            uid,
            job,
            priority,
            status,
            node,
            gated,
            nominated_node,
            annotations,
            requests,
            limits,
            nonzero_requests,
            counted_requests,
            container_nonzero_requests,
            container_requests,
            kubernetes_requests,
            card,
            unevaluated_fields,
            constraints,
            labels,
            gang,
            creation_time,
        } = fields;
        let shape = TaskShape {
            priority,
            gated,
            nominated_node,
            annotations,
            requests,
            limits,
            nonzero_requests,
            counted_requests,
            container_nonzero_requests,
            container_requests,
            kubernetes_requests,
            card,
            unevaluated_fields,
            constraints,
            gang,
        };
        Self {
            name,
            uid,
            job,
            node,
            labels,
            creation_time: creation_time.into(),
            shape: Arc::new(shape),
            status,
        }
    }
}

impl PodIdentity {
    /// Identity of a task.
    pub fn of(task: &TaskRecord) -> Self {
        Self {
            namespace: task.namespace().into(),
            labels: Arc::clone(&task.labels),
        }
    }
}
