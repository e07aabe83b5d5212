//! Rules about the positions of queues in the hierarchy.

use std::sync::Arc;

use super::{HIERARCHY, NAME, WEIGHTS, hierarchy};
use crate::model::{ClusterState, Problem, QueueRecord, RecordKind, find_text};
use crate::plugin::{RecordRules, RecordWarning, RecordWarningKind};
use crate::policy::{Compatibility, Policy, Switch};

/// Rules about the annotations of queues that give their positions.
#[derive(Debug)]
pub(super) struct HierarchyRules;

impl RecordRules for HierarchyRules {
    /// True if the policy orders queues by their positions and reports bad ones. Under `upstream` they are repaired without
    /// a report.
    fn apply_to(&self, policy: &Policy) -> bool {
        // If the name has several entries, the first one decides.
        let first = policy.spec().plugins().find(|(_, plugin)| plugin.name == NAME);
        policy.compatibility() == Compatibility::Corrected
            && first.is_some_and(|(_, plugin)| plugin.switches.is_on(Switch::Hierarchy))
    }

    fn queue_problem(&self, queue: &QueueRecord) -> Option<Problem> {
        hierarchy::strict_path(queue).err()
    }

    fn reject_new_queues(&self) -> bool {
        true
    }

    /// Of two queues that contradict each other the one created later has the problem.
    fn queue_problems(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        let records = cluster_state.queues().iter().map(|(_, stored)| &stored.record);
        let paths = hierarchy::consistent_paths(records).into_iter();
        paths.filter_map(|(name, path)| Some((name, path.err()?))).collect()
    }

    fn contradictions(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        let by_itself = |name: &Arc<str>| {
            let stored = cluster_state.queues().get(name);
            stored.is_some_and(|stored| self.queue_problem(&stored.record).is_some())
        };
        let problems = self.queue_problems(cluster_state).into_iter();
        problems.filter(|(name, _)| !by_itself(name)).collect()
    }

    fn change_may_contradict(&self, before: &QueueRecord, after: &QueueRecord) -> bool {
        (&before.annotations, before.creation_time) != (&after.annotations, after.creation_time)
    }

    fn warnings(&self, cluster_state: &ClusterState) -> Vec<RecordWarning> {
        let has_position = |name: &Arc<str>| {
            let stored = cluster_state.queues().get(name);
            let has = |key| stored.is_some_and(|stored| find_text(&stored.record.annotations, key).is_some());
            has(HIERARCHY) || has(WEIGHTS)
        };
        let problems = self.queue_problems(cluster_state).into_iter();
        let warning = |(name, problem): (Arc<str>, Problem)| RecordWarning {
            record: (RecordKind::Queue, name),
            kind: RecordWarningKind::AnnotationInvalid(problem.message),
        };
        problems.filter(|(name, _)| has_position(name)).map(warning).collect()
    }
}
