//! Store in memory that fails on demand, for tests.

#![expect(clippy::disallowed_types, reason = "knobs of a test")]

use std::sync::{Arc, Mutex};

use crate::store::{Durability, MemoryStore, Store, StoreError, StoreWrite, StoredState};

/// Ways in which the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreErrorMode {
    /// The store works.
    #[default]
    None,
    /// The store rejects writes and writes nothing.
    RejectWrites,
    /// The store writes the next write and reports an error; it rejects all later writes.
    FailAfterWrite,
}

/// Failing store, as one server has it open. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct FailingStore {
    content: MemoryStore,
    error_mode: Arc<Mutex<StoreErrorMode>>,
    /// Writes that succeeded, each with its content.
    written: Arc<Mutex<Vec<Vec<StoreWrite>>>>,
}

impl FailingStore {
    pub(super) fn set_error_mode(&self, problem: StoreErrorMode) {
        *self.error_mode.lock().unwrap() = problem;
    }

    /// Writes since the last call, in order.
    pub(super) fn take_written(&self) -> Vec<Vec<StoreWrite>> {
        std::mem::take(&mut *self.written.lock().unwrap())
    }

    /// Content of the store.
    pub(super) fn content(&self) -> MemoryStore {
        self.content.clone()
    }

    /// Crashes the server that has the store open: its later writes are lost. Returns the store that the next server
    /// opens.
    pub(super) fn crash(&self) -> Self {
        // A write under way finishes; no new one begins.
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
