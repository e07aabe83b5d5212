//! The records that sources send: nodes, queues, jobs and tasks.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::amounts::ResourceAmounts;
use super::uid::{CreationTime, Uid};
use super::unevaluated::UnevaluatedFields;

/// Names to texts, sorted by name: labels or annotations, only those that plugins declare.
pub type TextMap = Arc<[(Arc<str>, Arc<str>)]>;

/// The text of a name.
pub fn find_text<'a>(texts: &'a TextMap, name: &str) -> Option<&'a str> {
    let at = texts.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
    texts.get(at).map(|(_, text)| &**text)
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRecord {
    /// Key.
    pub name: Arc<str>,
    /// Incarnation; empty: not said.
    pub uid: Arc<str>,
    /// Labels that plugins declare.
    pub labels: TextMap,
    /// What pods may use, raw.
    pub allocatable: ResourceAmounts,
    /// Added to `allocatable`.
    pub oversubscription: Option<ResourceAmounts>,
    /// The Ready condition, if it was said; otherwise ready.
    pub ready: Option<bool>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Used by pods that are not records here, `pods` included.
    pub unattributed_used: Option<ResourceAmounts>,
    /// The same in non-zero requests, cpu and memory only.
    pub unattributed_nonzero_used: Option<ResourceAmounts>,
    /// Fields of the node object that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
}

/// State of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// Not said; treated as open.
    #[default]
    Unspecified,
    /// Takes jobs.
    Open,
    /// Takes no jobs.
    Closed,
    /// Takes no new jobs.
    Closing,
    /// Volcano's Unknown.
    Unknown,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueRecord {
    /// Key.
    pub name: Arc<str>,
    /// Incarnation; empty: not said.
    pub uid: Arc<str>,
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Annotations that plugins declare.
    pub annotations: TextMap,
    /// spec.weight; `None`: 1.
    pub weight: Option<i32>,
    /// spec.priority, larger first.
    pub priority: i32,
    /// status.state.
    pub state: QueueState,
    /// Parent queue; empty: the root.
    pub parent: Arc<str>,
    /// spec.reclaimable; `None`: true.
    pub reclaimable: Option<bool>,
    /// Hard ceiling.
    pub capability: Option<ResourceAmounts>,
    /// Soft entitlement.
    pub deserved: Option<ResourceAmounts>,
    /// Floor that nobody else may use.
    pub guarantee: Option<ResourceAmounts>,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobPhase {
    /// Not said.
    #[default]
    Unspecified,
    /// Waits for admission.
    Pending,
    /// Admitted, not yet running.
    Inqueue,
    /// At least `min_member` tasks run.
    Running,
    /// Some run, fewer than `min_member`.
    Unknown,
    /// Done.
    Completed,
}

/// A gang.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRecord {
    /// Key: `namespace/name`.
    pub name: Arc<str>,
    /// Incarnation; empty: not said.
    pub uid: Arc<str>,
    /// Its queue.
    pub queue: Arc<str>,
    /// Seconds since 1970; `None`: oldest.
    pub creation_time: Option<i64>,
    /// Larger first.
    pub priority: i32,
    /// status.phase.
    pub phase: JobPhase,
    /// Fewer tasks than this are not worth starting.
    pub min_member: i32,
    /// spec.minResources.
    pub min_resources: Option<ResourceAmounts>,
    /// Annotations that plugins declare.
    pub annotations: TextMap,
}

impl JobRecord {
    /// True if it equals another one. What both share is not read: of a stored job that is only named, nothing is.
    pub fn same_as(&self, other: &Self) -> bool {
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
        } = self;
        let texts = [(name, &other.name), (uid, &other.uid), (queue, &other.queue)];
        let same_annotations = || Arc::ptr_eq(annotations, &other.annotations) || *annotations == other.annotations;
        (creation_time, priority, phase) == (&other.creation_time, &other.priority, &other.phase)
            && (min_member, min_resources) == (&other.min_member, &other.min_resources)
            && texts.iter().all(|(own, other)| Arc::ptr_eq(own, other) || own == other)
            && same_annotations()
    }
}

/// Where a task stands, in Volcano's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskStatus {
    /// Has no node.
    #[default]
    Pending,
    /// Given a node in this cycle.
    Allocated,
    /// Waits for what is being released on its node.
    Pipelined,
    /// Bind sent.
    Binding,
    /// Bound, not yet running.
    Bound,
    /// Runs.
    Running,
    /// Being deleted.
    Releasing,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Volcano's Unknown.
    Unknown,
}

impl TaskStatus {
    /// True if the task counts in its job's `allocated`.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }

    /// True if the task, on a node, takes of what is allocatable there.
    pub fn is_used(self) -> bool {
        self.is_on_node() && self != Self::Pipelined
    }

    /// True if the task, on a node, takes part in that node's vectors.
    pub fn is_on_node(self) -> bool {
        !matches!(self, Self::Pending | Self::Succeeded | Self::Failed)
    }
}

/// What tasks of one template have in common: records share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskShape {
    /// Larger first.
    pub priority: i32,
    /// Has a scheduling gate.
    pub gated: bool,
    /// status.nominatedNodeName; empty: none.
    pub nominated_node: Arc<str>,
    /// Annotations that plugins declare.
    pub annotations: TextMap,
    /// Effective requests, the pod itself included: `pods` is at least 1.
    pub requests: ResourceAmounts,
    /// Effective limits.
    pub limits: Option<Box<ResourceAmounts>>,
    /// Kubernetes' non-zero requests, cpu and memory only.
    pub nonzero_requests: Option<Box<ResourceAmounts>>,
    /// What `NodeResourcesFitPlus` adds for this pod.
    pub counted_requests: Option<Box<ResourceAmounts>>,
    /// The card that a commit put it on; empty: none said. No source tells it.
    pub card: Arc<str>,
    /// Fields of the pod that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
}

/// A pod: stored, asked about, or imagined. It reads, and is changed, as if the fields of its shape were its own; it is
/// built from [`TaskFields`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRecord {
    /// Key: `namespace/name`; may be empty in questions.
    pub name: Arc<str>,
    /// Incarnation; empty: not said.
    pub uid: Uid,
    /// Its job; empty: none.
    pub job: Arc<str>,
    /// The node that it is on, or waits for; empty: none.
    pub node: Arc<str>,
    /// When it was created.
    pub creation_time: CreationTime,
    /// What it shares with others.
    pub shape: Arc<TaskShape>,
    /// Where it stands.
    pub status: TaskStatus,
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

/// All of a task, side by side, to build a [`TaskRecord`] from.
#[derive(Clone, Debug, Default)]
pub struct TaskFields {
    /// Key: `namespace/name`; may be empty in questions.
    pub name: Arc<str>,
    /// Incarnation; empty: not said.
    pub uid: Uid,
    /// Its job; empty: none.
    pub job: Arc<str>,
    /// Larger first.
    pub priority: i32,
    /// Where it stands.
    pub status: TaskStatus,
    /// The node that it is on, or waits for; empty: none.
    pub node: Arc<str>,
    /// Has a scheduling gate.
    pub gated: bool,
    /// status.nominatedNodeName; empty: none.
    pub nominated_node: Arc<str>,
    /// Annotations that plugins declare.
    pub annotations: TextMap,
    /// Effective requests, the pod itself included: `pods` is at least 1.
    pub requests: ResourceAmounts,
    /// Effective limits.
    pub limits: Option<Box<ResourceAmounts>>,
    /// Kubernetes' non-zero requests, cpu and memory only.
    pub nonzero_requests: Option<Box<ResourceAmounts>>,
    /// What `NodeResourcesFitPlus` adds for this pod.
    pub counted_requests: Option<Box<ResourceAmounts>>,
    /// The card that a commit put it on; empty: none said. No source tells it.
    pub card: Arc<str>,
    /// Fields of the pod that no other field carries.
    pub unevaluated_fields: UnevaluatedFields,
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
            card,
            unevaluated_fields,
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
            card,
            unevaluated_fields,
        };
        Self {
            name,
            uid,
            job,
            node,
            creation_time: creation_time.into(),
            shape: Arc::new(shape),
            status,
        }
    }
}
