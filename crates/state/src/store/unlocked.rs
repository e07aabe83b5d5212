//! Store that is never written to under a lock: a slow disk delays those who wait for the write, and nobody else.

use super::{Durability, Store, StoreError, StoreWrite, StoredState};
use pumice_engine::short_lock::assert_unlocked;

/// Store whose use under a [short lock](pumice_engine::short_lock::ShortLock) fails tests.
#[derive(Debug)]
pub struct UnlockedStore(Box<dyn Store>);

impl UnlockedStore {
    /// Wraps a store.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self(store)
    }
}

impl Store for UnlockedStore {
    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn load(&mut self) -> Result<StoredState, StoreError> {
        assert_unlocked();
        self.0.load()
    }

    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        assert_unlocked();
        self.0.write(writes)
    }
}
