//! Rules about the limits that queues have on groups of nodes.

use std::sync::Arc;

use super::group_limits::{GroupLimits, LIMITS};
use crate::model::{ClusterState, ErrorCode, Problem, QueueRecord, RecordKind};
use crate::plugin::{RecordRules, RecordWarning, RecordWarningKind};
use crate::policy::Policy;

/// Rules about limits.
#[derive(Debug)]
pub(super) struct LimitRules;

impl RecordRules for LimitRules {
    /// Under each policy, limits that cannot be read close all nodes to the queue, as in the reference. So the record is
    /// accepted with a warning.
    fn apply_to(&self, _: &Policy) -> bool {
        false
    }

    fn queue_problem(&self, queue: &QueueRecord) -> Option<Problem> {
        let error = GroupLimits::of(queue).err()?;
        let field = format!("queues[{}].annotations[{LIMITS}]", queue.name);
        let message = format!("{error}; no node takes tasks of the queue until the annotation is corrected or removed");
        Some(Problem::new(ErrorCode::AnnotationInvalid, field, message))
    }

    fn warnings(&self, cluster_state: &ClusterState) -> Vec<RecordWarning> {
        let queues = cluster_state.queues().iter();
        let broken = queues.filter_map(|(name, stored)| {
            let error = GroupLimits::of(&stored.record).err()?;
            Some(RecordWarning {
                record: (RecordKind::Queue, Arc::clone(name)),
                kind: RecordWarningKind::AnnotationInvalid(format!("{LIMITS}: {error}")),
            })
        });
        broken.collect()
    }
}
