//! The snapshot: state and policies, published together; what one decision reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::model::ClusterState;
use super::plugin_state::PluginStates;
use super::policy::{Policy, UnknownProfileError};

/// Age of the state. Numbers of different epochs cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Random per process start.
    pub epoch: u64,
    /// Grows by one with every publication.
    pub number: u64,
}

/// How far a source's records have been taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The owner of the records.
    pub source: Arc<str>,
    /// Set by the source; a higher one fences the lower.
    pub source_epoch: u64,
    /// The last batch taken.
    pub sequence: u64,
}

impl SourcePosition {
    /// True if everything up to `wanted`, a position of the same source, has been taken in.
    pub fn reaches(&self, wanted: &Self) -> bool {
        (self.source_epoch, self.sequence) >= (wanted.source_epoch, wanted.sequence)
    }
}

/// A policy in force under a name.
#[derive(Clone, Debug)]
pub struct PolicyInForce {
    /// Its name.
    pub name: Arc<str>,
    /// 1, 2, 3, … under that name; 0: inline or built-in.
    pub version: u64,
    /// SHA-256 of the document, hexadecimal.
    pub hash: Arc<str>,
    /// Profile of it; empty: all, or the only one.
    pub profile: Arc<str>,
    /// What it says, compiled.
    pub policy: Arc<Policy>,
}

impl PolicyInForce {
    /// The same for a profile; an empty name means the only one.
    ///
    /// # Errors
    /// There is no such profile, or there are several and none was named.
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

/// What one decision reads.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its age.
    pub revision: Revision,
    /// State.
    pub state: ClusterState,
    /// Policies by name.
    pub policies: Arc<BTreeMap<Arc<str>, Arc<PolicyInForce>>>,
    /// How far each source came.
    pub positions: Arc<BTreeMap<Arc<str>, SourcePosition>>,
    /// What plugins derived from `view`, as far as it was asked for.
    pub plugin_state_cache: PluginStateCache,
}

impl Snapshot {
    /// What the plugins of a policy derive from the state: worked out by the first that asks, from what was known of an
    /// older snapshot if that is possible. May take long.
    pub fn plugin_states(&self, policy: &PolicyInForce) -> PluginStates {
        let cell = {
            let mut cells = self.plugin_state_cache.lock();
            Arc::clone(cells.entry(Arc::clone(&policy.name)).or_default())
        };
        let derive = || {
            let before = self.plugin_state_cache.older.get(&policy.name);
            let before = before.filter(|before| Arc::ptr_eq(&before.policy, &policy.policy));
            let before = before.map(|before| (&before.state, &before.plugin_states));
            policy.policy.advance_plugin_states(&self.state, before)
        };
        cell.get_or_init(derive).clone()
    }
}

/// What was derived from an older snapshot.
#[derive(Clone, Debug)]
struct OlderPluginStates {
    policy: Arc<Policy>,
    state: ClusterState,
    plugin_states: PluginStates,
}

/// By the name of the policy; a cell without a value is being worked out.
type PluginStateCells = BTreeMap<Arc<str>, Arc<OnceLock<PluginStates>>>;

/// Derived state by the name of the policy.
#[derive(Debug, Default)]
pub struct PluginStateCache {
    cells: Mutex<PluginStateCells>,
    /// What was known last of older snapshots. It holds their cluster states until something is derived from a newer one.
    older: BTreeMap<Arc<str>, Arc<OlderPluginStates>>,
}

impl PluginStateCache {
    fn lock(&self) -> MutexGuard<'_, PluginStateCells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets what is known of the snapshot before help to work things out.
    pub fn reuse_from(&mut self, older: &Snapshot) {
        self.older.clone_from(&older.plugin_state_cache.older);
        // A policy that was deleted needs nothing any more.
        self.older.retain(|name, _| older.policies.contains_key(name));
        for (name, cell) in &*older.plugin_state_cache.lock() {
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

    /// True if it has been worked out under a policy.
    pub fn is_ready(&self, policy: &str) -> bool {
        let cells = self.lock();
        cells.get(policy).is_some_and(|cell| cell.get().is_some())
    }

    /// What has been worked out, by policy.
    pub fn ready(&self) -> BTreeMap<Arc<str>, PluginStates> {
        let cells = self.lock();
        let ready = cells
            .iter()
            .filter_map(|(name, cell)| Some((Arc::clone(name), cell.get()?.clone())));
        ready.collect()
    }

    /// Takes in what is known to be derived under a policy, so that nobody works it out again.
    pub fn seed(&self, policy: &Arc<str>, derived: PluginStates) {
        self.lock()
            .insert(Arc::clone(policy), Arc::new(OnceLock::from(derived)));
    }
}

/// A clone is empty: a snapshot is cloned in order to be changed.
impl Clone for PluginStateCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}
