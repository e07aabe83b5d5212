//! Placements that the server chose in the call that commits them: each call's placement holds as a whole, or not at all.

use std::sync::Arc;

use super::commit_outcome::ProposedJob;
use super::placement_count::count_placement;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::{ClusterState, Problem, TaskStatus};
use pumice_engine::plugin_state::PluginStates;

/// Placement of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCall {
    /// Name of the placement. A release passes it as the session.
    pub hold: Arc<str>,
    /// Job of the call, with the nodes that were chosen for its tasks.
    pub job: ProposedJob,
}

/// Placements of calls under one policy, evaluated one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCalls {
    /// Name and profile of the policy.
    pub policy: (Arc<str>, Arc<str>),
    /// The calls, each with its placement.
    pub calls: Arc<Vec<PlacedCall>>,
}

impl PlacedCall {
    /// Applies the placement to a cluster state and to plugin states, as its commit does. Tasks that already have a
    /// node are skipped.
    ///
    /// # Errors
    /// A plugin cannot apply the placement. The caller must discard both states.
    pub fn count(&self, cluster_state: &mut ClusterState, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        for proposed in &self.job.placements {
            let TaskPlacement {
                task,
                node,
                card,
                devices,
            } = &proposed.placement;
            let stored = cluster_state.tasks().get(task);
            let Some(stored) = stored.filter(|stored| stored.record.status == TaskStatus::Pending) else {
                continue;
            };
            let stored = Arc::clone(stored);
            let put = (&stored.record, node, card, *devices);
            count_placement(cluster_state, plugin_states, put)?;
        }
        Ok(())
    }
}
