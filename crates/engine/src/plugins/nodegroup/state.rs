//! State of the plugin: whether queues inherit affinities.

use std::sync::Arc;

use crate::model::{ClusterState, Problem, StateDiff};
use crate::plugin_state::{PlacementEvent, PluginState};
use crate::policy::{PluginSwitches, Switch};

/// Switch of the policy that lets queues inherit, which no cluster state changes.
#[derive(Clone, Debug)]
pub(super) struct InheritanceState {
    /// True if a queue without an affinity inherits the affinity of its nearest ancestor.
    pub(super) inherits: bool,
}

impl InheritanceState {
    pub(super) fn of(switches: &PluginSwitches) -> Self {
        Self {
            inherits: switches.is_on(Switch::Hierarchy),
        }
    }
}

impl PluginState for InheritanceState {
    fn apply(&mut self, _: &ClusterState, _: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
        Ok(Vec::new())
    }

    fn apply_repeated(&mut self, _: &ClusterState, _: &PlacementEvent<'_>, _: u64) -> Result<(), Problem> {
        Ok(())
    }

    fn advance(&self, _: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        Some(self.copy())
    }

    fn held_bytes(&self, _: Option<&dyn PluginState>) -> usize {
        size_of::<Self>()
    }

    fn copy(&self) -> Arc<dyn PluginState> {
        Arc::new(self.clone())
    }
}
