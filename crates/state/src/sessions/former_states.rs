//! Former states that open sessions hold, and their memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session_entry::SessionEntry;
use pumice_engine::Snapshot;
use pumice_engine::model::ClusterState;
use pumice_engine::plugin_state::PluginStates;

/// Initial states of sessions on shared state, by number of their revision: oldest first.
#[derive(Default)]
pub(crate) struct FormerStates {
    cluster_states: BTreeMap<u64, ClusterState>,
    /// By name of the policy.
    plugin_states: BTreeMap<Arc<str>, BTreeMap<u64, PluginStates>>,
}

impl FormerStates {
    /// States that these sessions were opened on, apart from the newest one.
    pub(crate) fn of(open: &[Arc<SessionEntry>], newest: &Snapshot) -> Self {
        let mut former = Self::default();
        // A cluster of a session's own counts since the session was opened.
        let shared = open.iter().filter(|session| session.shared.is_some());
        for session in shared.filter(|session| session.revision.number < newest.revision.number) {
            let (cycle, number) = (&session.inner.load().cycle, session.revision.number);
            let plugin_states = former
                .plugin_states
                .entry(Arc::clone(&session.policy.name))
                .or_default();
            plugin_states
                .entry(number)
                .or_insert_with(|| cycle.initial_plugin_states().clone());
            former
                .cluster_states
                .entry(number)
                .or_insert_with(|| cycle.initial_state().clone());
        }
        former
    }

    /// Bytes of the states that no newer state shares. For each state, this is the difference to the next state: data
    /// that the next state lacks is also missing in all later states.
    pub(crate) fn bytes(&self, newest: &Snapshot) -> usize {
        let newer = self.cluster_states.values().skip(1).chain([&newest.state]);
        let cluster_states = self.cluster_states.values().zip(newer);
        let mut sum: usize = cluster_states.map(|(state, newer)| state.unshared_bytes(newer)).sum();
        for (policy, states) in &self.plugin_states {
            let present = newest.plugin_state_cache.latest(policy).unwrap_or_default();
            let newer = states.values().skip(1).chain([&present]);
            sum += states
                .values()
                .zip(newer)
                .map(|(own, newer)| own.unshared_bytes(newer))
                .sum::<usize>();
        }
        sum
    }
}
