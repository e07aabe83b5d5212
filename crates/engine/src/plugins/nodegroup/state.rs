//! State of the plugin: whether queues inherit affinities.

use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::Problem;
use crate::plugin_state::{PluginState, PluginStateChange};
use crate::policy::{PluginSwitches, Switch};

/// Switch of the policy that lets queues inherit, which no cluster state changes.
#[derive(Clone, Debug)]
pub(super) struct InheritanceState {
    /// True if a queue without an affinity inherits the affinity of its nearest ancestor.
    pub(super) inherits: bool,
}

held_bytes! { plain InheritanceState }

impl InheritanceState {
    pub(super) fn of(switches: &PluginSwitches) -> Self {
        Self {
            inherits: switches.is_on(Switch::Hierarchy),
        }
    }
}

impl PluginState for InheritanceState {
    fn apply(&mut self, _: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        Ok(Vec::new())
    }
}
