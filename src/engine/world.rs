//! The World: state and policies, published together; what one decision reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::derived::DerivedSet;
use super::model::View;
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
pub struct Position {
    /// The owner of the records.
    pub source: Arc<str>,
    /// Set by the source; a higher one fences the lower.
    pub source_epoch: u64,
    /// The last batch taken.
    pub sequence: u64,
}

impl Position {
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
pub struct World {
    /// Its age.
    pub revision: Revision,
    /// State.
    pub view: View,
    /// Policies by name.
    pub policies: Arc<BTreeMap<Arc<str>, Arc<PolicyInForce>>>,
    /// How far each source came.
    pub positions: Arc<BTreeMap<Arc<str>, Position>>,
    /// What plugins derived from `view`, as far as it was asked for.
    pub derived: Derivations,
}

impl World {
    /// What the plugins of a policy derive from the state: worked out by the first that asks, from what was known of an
    /// older World if that is possible. May take long.
    pub fn derived(&self, policy: &PolicyInForce) -> DerivedSet {
        let cell = {
            let mut cells = self.derived.lock();
            Arc::clone(cells.entry(Arc::clone(&policy.name)).or_default())
        };
        let derive = || {
            let before = self.derived.before.get(&policy.name);
            let before = before.filter(|before| Arc::ptr_eq(&before.policy, &policy.policy));
            let before = before.map(|before| (&before.view, &before.derived));
            policy.policy.derive_after(&self.view, before)
        };
        cell.get_or_init(derive).clone()
    }
}

/// What was derived from an older World.
#[derive(Clone, Debug)]
struct Known {
    policy: Arc<Policy>,
    view: View,
    derived: DerivedSet,
}

/// By the name of the policy; a cell without a value is being worked out.
type Cells = BTreeMap<Arc<str>, Arc<OnceLock<DerivedSet>>>;

/// Derived state by the name of the policy.
#[derive(Debug, Default)]
pub struct Derivations {
    cells: Mutex<Cells>,
    /// What was known last of older Worlds. It holds their Views until something is derived from a newer one.
    before: BTreeMap<Arc<str>, Arc<Known>>,
}

impl Derivations {
    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets what is known of the World before help to work things out.
    pub fn build_on(&mut self, older: &World) {
        self.before.clone_from(&older.derived.before);
        for (name, cell) in &*older.derived.lock() {
            if let (Some(derived), Some(policy)) = (cell.get(), older.policies.get(name)) {
                let known = Known {
                    policy: Arc::clone(&policy.policy),
                    view: older.view.clone(),
                    derived: derived.clone(),
                };
                self.before.insert(Arc::clone(name), Arc::new(known));
            }
        }
    }

    /// True if it has been worked out under a policy.
    pub fn is_ready(&self, policy: &str) -> bool {
        let cells = self.lock();
        cells.get(policy).is_some_and(|cell| cell.get().is_some())
    }

    /// What has been worked out, by policy.
    pub fn ready(&self) -> BTreeMap<Arc<str>, DerivedSet> {
        let cells = self.lock();
        let ready = cells
            .iter()
            .filter_map(|(name, cell)| Some((Arc::clone(name), cell.get()?.clone())));
        ready.collect()
    }

    /// Takes in what is known to be derived under a policy, so that nobody works it out again.
    pub fn seed(&self, policy: &Arc<str>, derived: DerivedSet) {
        self.lock()
            .insert(Arc::clone(policy), Arc::new(OnceLock::from(derived)));
    }
}

/// A clone is empty: a World is cloned in order to be changed.
impl Clone for Derivations {
    fn clone(&self) -> Self {
        Self::default()
    }
}
