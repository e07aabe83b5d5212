//! Rules of plugins about records: requirements for a record that the plugin uses. For example, the annotation
//! `volcano.sh/card.quota` must be valid JSON.

use std::fmt::Debug;
use std::sync::Arc;

use crate::model::{ClusterState, Problem, QueueRecord, RecordKind};
use crate::policy::Policy;

/// Rules of a plugin about records, independent of the active policy.
pub trait RecordRules: Debug + Sync {
    /// True if a policy needs queues to follow the rules. Otherwise a queue that breaks them is accepted with a
    /// warning, because a later policy may need them.
    fn apply_to(&self, policy: &Policy) -> bool;

    /// Problem of a queue by itself. Its field begins with `queues[<name>]`.
    fn queue_problem(&self, queue: &QueueRecord) -> Option<Problem>;

    /// True if a queue that breaks the rules is rejected even without an earlier good record.
    fn reject_new_queues(&self) -> bool {
        false
    }

    /// Problems of all queues, by themselves or because they contradict each other, by name.
    fn queue_problems(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        let queues = cluster_state.queues().iter();
        let found = queues.filter_map(|(name, stored)| Some((Arc::clone(name), self.queue_problem(&stored.record)?)));
        found.collect()
    }

    /// Problems of queues that contradict each other, by name. Queues with a problem by themselves are left out.
    fn contradictions(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        let _ = cluster_state;
        Vec::new()
    }

    /// True if a change of a queue's record may end or begin a contradiction with other queues.
    fn change_may_contradict(&self, before: &QueueRecord, after: &QueueRecord) -> bool {
        let _ = (before, after);
        false
    }

    /// Warnings about records that a load would pass over in silence.
    fn warnings(&self, cluster_state: &ClusterState) -> Vec<RecordWarning> {
        let _ = cluster_state;
        Vec::new()
    }
}

/// Warning about a record that hardly means what its author has in mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWarning {
    /// Kind and name of the record.
    pub record: (RecordKind, Arc<str>),
    /// Kind of the warning, with what it names.
    pub kind: RecordWarningKind,
}

/// Kind of a warning about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordWarningKind {
    /// An annotation is unreadable. The message has the reason.
    AnnotationInvalid(String),
    /// A label or a resource does not define a card. The message has the reason.
    CardLabelIgnored(String),
    /// A record names a card that no node has.
    UnknownCard(Arc<str>),
}
