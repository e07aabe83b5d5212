//! A store in memory that fails as it is told to, for tests.

use std::sync::{Arc, Mutex};

use crate::store::{Durability, MemoryStore, Store, StoreError, StoreWrite, StoredState};

/// How a store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreErrorMode {
    /// It does not.
    #[default]
    None,
    /// Nothing is written.
    RejectWrites,
    /// All is written, and then it says that it failed; after that nothing is.
    FailAfterWrite,
}

/// The store, as one server has it open. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct FailingStore {
    content: MemoryStore,
    error_mode: Arc<Mutex<StoreErrorMode>>,
    /// What each write that went well held.
    written: Arc<Mutex<Vec<Vec<StoreWrite>>>>,
}

impl FailingStore {
    pub(super) fn set_error_mode(&self, problem: StoreErrorMode) {
        *self.error_mode.lock().unwrap() = problem;
    }

    /// What was written since this was asked last, one write after the other.
    pub(super) fn take_written(&self) -> Vec<Vec<StoreWrite>> {
        std::mem::take(&mut *self.written.lock().unwrap())
    }

    /// What is in it.
    pub(super) fn content(&self) -> MemoryStore {
        self.content.clone()
    }

    /// The server that has it open dies: whatever it still does is not seen. What the next one opens.
    pub(super) fn crash(&self) -> Self {
        // Whoever is writing has written, and nobody begins any more.
        self.set_error_mode(StoreErrorMode::RejectWrites);
        Self {
            content: self.content.clone(),
            ..Self::default()
        }
    }
}

impl Store for FailingStore {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<StoredState, StoreError> {
        self.content.load()
    }

    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        let mut problem = self.error_mode.lock().unwrap();
        if *problem != StoreErrorMode::RejectWrites {
            self.content.write(writes)?;
        }
        if *problem == StoreErrorMode::None {
            self.written.lock().unwrap().push(writes.to_vec());
            return Ok(());
        }
        *problem = StoreErrorMode::RejectWrites;
        Err(StoreError::Failed {
            place: "there".to_owned(),
            message: "full".to_owned(),
        })
    }
}
