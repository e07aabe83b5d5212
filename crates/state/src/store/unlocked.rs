//! Store that is never written to under a lock: a slow disk delays only callers that wait for the write.

use std::sync::Arc;

use super::{Durability, LogHead, LogNews, LogRead, Store, StoreError, StoreWrite, StoredState};
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

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        assert_unlocked();
        self.0.load()
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        assert_unlocked();
        self.0.head()
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        assert_unlocked();
        self.0.append(expected, writes)
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        assert_unlocked();
        self.0.read_after(known)
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        self.0.follow(news)
    }
}
