//! Problems of queues' positions in the hierarchy, reported before any query of Order.

use std::sync::Arc;

use super::{NAME, hierarchy};
use crate::model::{ClusterState, Problem, QueueRecord};
use crate::policy::{Compatibility, Policy, Switch};

/// True if a policy orders queues by their positions in the hierarchy and reports bad ones. Under `upstream` they are
/// repaired without a report.
pub fn checks_hierarchy(policy: &Policy) -> bool {
    // If the name has several entries, the first one decides.
    let first = policy.spec().plugins().find(|(_, plugin)| plugin.name == NAME);
    policy.compatibility() == Compatibility::Corrected
        && first.is_some_and(|(_, plugin)| plugin.switches.is_on(Switch::Hierarchy))
}

/// Problem of a queue's annotations by themselves. Its field is the annotation.
pub fn queue_hierarchy_problem(queue: &QueueRecord) -> Option<Problem> {
    hierarchy::strict_path(queue).err()
}

/// Problems of queues whose position is bad or contradicts another queue, by name. Of two queues that contradict each
/// other the one created later has the problem.
pub fn hierarchy_problems(cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
    let records = cluster_state.queues().iter().map(|(_, stored)| &stored.record);
    let paths = hierarchy::consistent_paths(records).into_iter();
    paths.filter_map(|(name, path)| Some((name, path.err()?))).collect()
}
