//! Rules about the places of queues in the tree, and about their quotas.

use std::sync::Arc;

use super::PLUGIN;
use super::quota_rules::impossible_quotas;
use super::tree::QuotaTree;
use crate::model::{ClusterState, Problem, QueueRecord};
use crate::plugin::RecordRules;
use crate::policy::{Compatibility, Policy, Switch};

/// Rules about parents and quotas.
#[derive(Debug)]
pub(super) struct ParentRules;

impl RecordRules for ParentRules {
    /// True if the policy has the tree and names what is wrong with it. Under `upstream` nothing is decided then.
    fn apply_to(&self, policy: &Policy) -> bool {
        let first = policy.spec().plugins().find(|(_, plugin)| plugin.name == PLUGIN);
        policy.compatibility() == Compatibility::Corrected
            && first.is_some_and(|(_, plugin)| plugin.switches.is_on(Switch::Hierarchy))
    }

    /// A queue has no problem by itself: its parent may come later.
    fn queue_problem(&self, _: &QueueRecord) -> Option<Problem> {
        None
    }

    fn queue_problems(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        let tree = QuotaTree::of(cluster_state, Compatibility::Corrected);
        tree.problems.into_iter().collect()
    }

    /// Quotas that cannot hold are warnings under every policy: `proportion` reads the same fields.
    fn contradictions(&self, cluster_state: &ClusterState) -> Vec<(Arc<str>, Problem)> {
        impossible_quotas(cluster_state)
    }

    fn change_may_contradict(&self, before: &QueueRecord, after: &QueueRecord) -> bool {
        (&before.parent, &before.capability, &before.deserved, &before.guarantee)
            != (&after.parent, &after.capability, &after.deserved, &after.guarantee)
    }
}
