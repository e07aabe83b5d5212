//! Store in memory: its content ends with its last handle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Durability, ReservationTombstone, Store, StoreError, StoreWrite, StoredAssumption, StoredPolicy, StoredState,
};
use pumice_engine::model::Reservation;
use pumice_engine::short_lock::ShortLock;

#[derive(Debug, Default)]
struct MemoryContent {
    reservations: BTreeMap<Arc<str>, Arc<Reservation>>,
    tombstones: BTreeMap<Arc<str>, Arc<ReservationTombstone>>,
    assumptions: BTreeMap<Arc<str>, Arc<StoredAssumption>>,
    policies: BTreeMap<(Arc<str>, u64), StoredPolicy>,
    policy_files: BTreeMap<Arc<str>, Arc<str>>,
    sources: BTreeSet<Arc<str>>,
}

/// Store in memory. Clones share the content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<ShortLock<MemoryContent>>);

impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn load(&mut self) -> Result<StoredState, StoreError> {
        Ok(self.0.with(|content| StoredState {
            reservations: content.reservations.values().cloned().collect(),
            tombstones: content.tombstones.values().cloned().collect(),
            assumptions: content.assumptions.values().cloned().collect(),
            policies: content.policies.values().cloned().collect(),
            policy_files: content.policy_files.clone().into_iter().collect(),
            sources: content.sources.iter().cloned().collect(),
        }))
    }

    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        self.0
            .with(|content| writes.iter().for_each(|write| content.apply(write)));
        Ok(())
    }
}

impl MemoryContent {
    fn apply(&mut self, write: &StoreWrite) {
        match write {
            StoreWrite::Job {
                job,
                reservation: row,
                tombstone,
            } => {
                put(&mut self.reservations, job, row.as_ref());
                put(&mut self.tombstones, job, tombstone.as_ref());
            }
            StoreWrite::Task { task, assumption } => put(&mut self.assumptions, task, assumption.as_ref()),
            StoreWrite::Policy(policy) => {
                self.policies
                    .insert((Arc::clone(&policy.name), policy.version), policy.clone());
            }
            StoreWrite::RemovePolicy { name, version } => {
                self.policies.remove(&(Arc::clone(name), *version));
            }
            StoreWrite::PolicyFile { name, content } => {
                put(&mut self.policy_files, name, content.as_ref());
            }
            StoreWrite::Source { name, is_awaited: true } => {
                self.sources.insert(Arc::clone(name));
            }
            StoreWrite::Source {
                name,
                is_awaited: false,
            } => {
                self.sources.remove(name);
            }
        }
    }
}

fn put<V: ?Sized>(map: &mut BTreeMap<Arc<str>, Arc<V>>, name: &Arc<str>, value: Option<&Arc<V>>) {
    match value {
        Some(value) => {
            map.insert(Arc::clone(name), Arc::clone(value));
        }
        None => {
            map.remove(name);
        }
    }
}
