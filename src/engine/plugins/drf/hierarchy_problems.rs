//! What is wrong with queues' places in the hierarchy, said before anybody asks for an order.

use std::sync::Arc;

use super::{NAME, hierarchy};
use crate::engine::model::{ClusterState, Problem, QueueRecord};
use crate::engine::policy::{Compatibility, Policy, Switch};

/// True if a policy orders queues by their places in the hierarchy and takes faulty ones for what they are. `upstream`
/// repairs them in silence.
pub fn checks_hierarchy(policy: &Policy) -> bool {
    // Of a name that stands there twice, the first entry decides.
    let first = policy.spec().plugins().find(|(_, plugin)| plugin.name == NAME);
    policy.compatibility() == Compatibility::Corrected
        && first.is_some_and(|(_, plugin)| plugin.switches.is_on(Switch::Hierarchy))
}

/// What is wrong with a queue's annotations, whatever other queues say. Its field is the annotation.
pub fn queue_hierarchy_problem(queue: &QueueRecord) -> Option<Problem> {
    hierarchy::strict_path(queue).err()
}

/// Queues whose place is faulty or contradicts that of another, by name. Of two that contradict each other it is the one
/// that was created later.
pub fn hierarchy_problems(cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
    let records = cluster_state.queues().iter().map(|(_, stored)| &stored.record);
    let paths = hierarchy::consistent_paths(records).into_iter();
    paths.filter_map(|(name, path)| Some((name, path.err()?))).collect()
}
