//! Snapshot: state and policies that are published together, and that one decision reads.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::model::{ClusterState, LabelKinds};
use super::plugin_state::PluginStates;
use super::policy::{Compatibility, Policy, Release, UnknownProfileError};
use super::short_lock::ShortLock;

/// Revision of the state. Numbers of different epochs cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Random number of the process start.
    pub epoch: u64,
    /// Number that grows by one with every publication.
    pub number: u64,
}

/// Position in a source's batches up to which its records are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// Source that owns the records.
    pub source: Arc<str>,
    /// Epoch set by the source; a higher one fences lower ones.
    pub source_epoch: u64,
    /// Number of the last applied batch.
    pub sequence: u64,
}

impl SourcePosition {
    /// True if everything up to `wanted`, a position of the same source, is applied.
    pub fn reaches(&self, wanted: &Self) -> bool {
        (self.source_epoch, self.sequence) >= (wanted.source_epoch, wanted.sequence)
    }
}

/// Active policy with its name and version.
#[derive(Clone, Debug)]
pub struct PolicyInForce {
    /// Name of the policy, such as `default`.
    pub name: Arc<str>,
    /// Version under that name: 1, 2, 3, …; 0: inline or built-in.
    pub version: u64,
    /// SHA-256 of the document, hexadecimal.
    pub hash: Arc<str>,
    /// Profile of the policy; empty: all, or the only one.
    pub profile: Arc<str>,
    /// Compiled policy.
    pub policy: Arc<Policy>,
}

impl PolicyInForce {
    /// Same policy for a profile. An empty name selects the only profile.
    ///
    /// # Errors
    /// The profile does not exist, or the name is empty and the policy has several profiles.
    pub fn of_profile(self: &Arc<Self>, profile: &str) -> Result<Arc<Self>, UnknownProfileError> {
        Ok(match self.policy.profile(profile)? {
            None => Arc::clone(self),
            Some(policy) => Arc::new(Self {
                profile: Arc::from(profile),
                policy: Arc::clone(policy),
                ..Self::clone(self)
            }),
        })
    }
}

/// State and policies that one decision reads.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Revision of the shared state. Each published change increases its number by 1.
    pub revision: Revision,
    /// Cluster state.
    pub state: ClusterState,
    /// Policies by name.
    pub policies: Arc<BTreeMap<Arc<str>, Arc<PolicyInForce>>>,
    /// Position of each source.
    pub positions: Arc<BTreeMap<Arc<str>, SourcePosition>>,
    /// Plugin states computed from `cluster_state`. Only requested states are present.
    pub plugin_state_cache: PluginStateCache,
}

impl Snapshot {
    /// Kinds of records whose labels active policies, or relations between records, read completely.
    pub fn read_labels(&self) -> LabelKinds {
        let policies = self.policies.values().map(|own| own.policy.all_labels());
        policies.fold(self.state.labels_of_relations(), LabelKinds::union)
    }

    /// Compatibility by which records are read: `Corrected` unless every active policy follows a release; then that
    /// release, or the newest of Volcano where they differ.
    pub fn strictest_compatibility(&self) -> Compatibility {
        let mut own = self.policies.values().map(|own| own.policy.compatibility());
        let Some(first) = own.next() else {
            return Compatibility::Corrected;
        };
        own.fold(first, |all, next| match (all, next) {
            (Compatibility::Upstream(all), Compatibility::Upstream(next)) if all != next => Compatibility::UPSTREAM,
            (Compatibility::Upstream(_), Compatibility::Upstream(_)) => all,
            _ => Compatibility::Corrected,
        })
    }

    /// Release by whose rules the amounts of pods are derived.
    pub fn pod_release(&self) -> Release {
        self.strictest_compatibility().release()
    }

    /// Plugin states of a policy for this state. The first caller computes them, if possible from the states of an
    /// older snapshot. This may take long.
    pub fn plugin_states(&self, policy: &PolicyInForce) -> PluginStates {
        let cells = &self.plugin_state_cache.cells;
        let cell = cells.with(|cells| Arc::clone(cells.entry(Arc::clone(&policy.name)).or_default()));
        let derive = || {
            let before = self.plugin_state_cache.older.get(&policy.name);
            let before = before.filter(|before| Arc::ptr_eq(&before.policy, &policy.policy));
            let before = before.map(|before| (&before.state, &before.plugin_states));
            policy.policy.advance_plugin_states(&self.state, before)
        };
        cell.get_or_init(derive).clone()
    }
}

/// Plugin states of an older snapshot, with its cluster state.
#[derive(Clone, Debug)]
struct OlderPluginStates {
    policy: Arc<Policy>,
    state: ClusterState,
    plugin_states: PluginStates,
}

/// Plugin states by name of the policy; an empty cell is being computed.
type PluginStateCells = BTreeMap<Arc<str>, Arc<OnceLock<PluginStates>>>;

/// Cache of plugin states, by name of the policy.
#[derive(Debug, Default)]
pub struct PluginStateCache {
    cells: ShortLock<PluginStateCells>,
    /// Latest plugin states of older snapshots. Their cluster states stay in memory until states of a newer snapshot
    /// are computed.
    older: BTreeMap<Arc<str>, Arc<OlderPluginStates>>,
}

impl PluginStateCache {
    /// Latest plugin states of a policy that are computed, of this snapshot or of an older one.
    pub fn latest(&self, policy: &str) -> Option<PluginStates> {
        let own = self.cells.with(|cells| cells.get(policy)?.get().cloned());
        own.or_else(|| Some(self.older.get(policy)?.plugin_states.clone()))
    }

    /// Cells of all policies.
    fn all_cells(&self) -> PluginStateCells {
        self.cells.with(|cells| cells.clone())
    }

    /// Lets this cache advance the plugin states of the snapshot before.
    pub fn reuse_from(&mut self, older: &Snapshot) {
        self.older.clone_from(&older.plugin_state_cache.older);
        // A policy that was deleted needs nothing any more.
        self.older.retain(|name, _| older.policies.contains_key(name));
        for (name, cell) in &older.plugin_state_cache.all_cells() {
            if let (Some(derived), Some(policy)) = (cell.get(), older.policies.get(name)) {
                let known = OlderPluginStates {
                    policy: Arc::clone(&policy.policy),
                    state: older.state.clone(),
                    plugin_states: derived.clone(),
                };
                self.older.insert(Arc::clone(name), Arc::new(known));
            }
        }
    }

    /// True if the plugin states of a policy are computed.
    pub fn is_ready(&self, policy: &str) -> bool {
        self.cells
            .with(|cells| cells.get(policy).is_some_and(|cell| cell.get().is_some()))
    }

    /// Computed plugin states, by policy.
    pub fn ready(&self) -> BTreeMap<Arc<str>, PluginStates> {
        let cells = self.all_cells();
        let ready = cells
            .iter()
            .filter_map(|(name, cell)| Some((Arc::clone(name), cell.get()?.clone())));
        ready.collect()
    }

    /// Stores known plugin states of a policy. Later callers then need not compute them.
    pub fn seed(&self, policy: &Arc<str>, plugin_states: PluginStates) {
        let known = Arc::new(OnceLock::from(plugin_states));
        self.cells.with(|cells| cells.insert(Arc::clone(policy), known));
    }
}

/// A clone is empty: a snapshot is cloned in order to be changed.
impl Clone for PluginStateCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}
