//! A store in memory that fails as it is told to, for tests.

use std::sync::{Arc, Mutex};

use crate::store::{Durability, Kept, MemoryStore, Store, StoreError, Write};

/// How a store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not.
    #[default]
    None,
    /// Nothing is written.
    Refuses,
    /// All is written, and then it says that it failed.
    Late,
}

/// The store, as one server has it open. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Fallible {
    content: MemoryStore,
    fault: Arc<Mutex<Fault>>,
}

impl Fallible {
    pub(super) fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// What is in it.
    pub(super) fn content(&self) -> MemoryStore {
        self.content.clone()
    }

    /// The server that has it open dies: whatever it still does is not seen. What the next one opens.
    pub(super) fn crash(&self) -> Self {
        // Whoever is writing has written, and nobody begins any more.
        self.fail(Fault::Refuses);
        Self {
            content: self.content.clone(),
            fault: Arc::default(),
        }
    }
}

impl Store for Fallible {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<Kept, StoreError> {
        self.content.load()
    }

    fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let fault = self.fault.lock().unwrap();
        if *fault != Fault::Refuses {
            self.content.write(writes)?;
        }
        if *fault == Fault::None {
            return Ok(());
        }
        Err(StoreError::Failed {
            place: "there".to_owned(),
            message: "full".to_owned(),
        })
    }
}
