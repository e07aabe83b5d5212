//! Counting of a placement in a cluster state and in plugin states.

use std::sync::Arc;

use crate::ledger::assumptions::restore_task;
use pumice_engine::devices::DeviceMask;
use pumice_engine::model::{ClusterState, Problem, TaskRecord};
use pumice_engine::plugin_state::{PlacementEvent, PluginStates, TaskTransition};

/// Places a pending task on a node, with its card and devices, in the cluster state and in plugin states.
///
/// # Errors
/// A plugin cannot apply the placement; nothing has changed.
pub(super) fn count_placement(
    cluster_state: &mut ClusterState,
    plugin_states: &mut PluginStates,
    (before, node, card, devices): (&TaskRecord, &Arc<str>, &Arc<str>, DeviceMask),
) -> Result<(), Problem> {
    if cluster_state.assume(&before.name, node, card, devices).is_none() || plugin_states.is_empty() {
        return Ok(());
    }
    let Some(stored) = cluster_state.tasks().get(&before.name).cloned() else {
        return Ok(());
    };
    let moved = TaskTransition::new(before, &stored.record, card);
    let mut next = plugin_states.clone();
    if let Err(problem) = next.apply(cluster_state, &[PlacementEvent::Allocate(moved)]) {
        restore_task(before.clone(), cluster_state);
        return Err(problem);
    }
    *plugin_states = next;
    Ok(())
}
