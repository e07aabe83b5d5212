//! A store in memory: what it keeps ends with its last handle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Durability, Kept, Store, StoreError, StoredAssumption, StoredPolicy, Tombstone, Write};
use crate::engine::model::Reservation;

#[derive(Debug, Default)]
struct Content {
    rows: BTreeMap<Arc<str>, Arc<Reservation>>,
    tombstones: BTreeMap<Arc<str>, Arc<Tombstone>>,
    assumptions: BTreeMap<Arc<str>, Arc<StoredAssumption>>,
    policies: BTreeMap<(Arc<str>, u64), StoredPolicy>,
    files: BTreeMap<Arc<str>, Arc<str>>,
}

/// Keeps things in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Content>>);

impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn load(&mut self) -> Result<Kept, StoreError> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Kept {
            rows: content.rows.values().cloned().collect(),
            tombstones: content.tombstones.values().cloned().collect(),
            assumptions: content.assumptions.values().cloned().collect(),
            policies: content.policies.values().cloned().collect(),
            files: content.files.clone().into_iter().collect(),
        })
    }

    fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for write in writes {
            content.take(write);
        }
        Ok(())
    }
}

impl Content {
    fn take(&mut self, write: &Write) {
        match write {
            Write::Job { job, row, tombstone } => {
                put(&mut self.rows, job, row.as_ref());
                put(&mut self.tombstones, job, tombstone.as_ref());
            }
            Write::Task { task, assumption } => put(&mut self.assumptions, task, assumption.as_ref()),
            Write::Policy(policy) => {
                self.policies
                    .insert((Arc::clone(&policy.name), policy.version), policy.clone());
            }
            Write::NoPolicy { name, version } => {
                self.policies.remove(&(Arc::clone(name), *version));
            }
            Write::PolicyFile { name, content } => {
                put(&mut self.files, name, content.as_ref());
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
