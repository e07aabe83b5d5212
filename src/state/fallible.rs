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
    /// All is written, and then it says that it failed; after that nothing is.
    Late,
}

/// The store, as one server has it open. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Fallible {
    content: MemoryStore,
    fault: Arc<Mutex<Fault>>,
    /// What each write that went well held.
    written: Arc<Mutex<Vec<Vec<Write>>>>,
}

impl Fallible {
    pub(super) fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// What was written since this was asked last, one write after the other.
    pub(super) fn written(&self) -> Vec<Vec<Write>> {
        std::mem::take(&mut *self.written.lock().unwrap())
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
            ..Self::default()
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
        let mut fault = self.fault.lock().unwrap();
        if *fault != Fault::Refuses {
            self.content.write(writes)?;
        }
        if *fault == Fault::None {
            self.written.lock().unwrap().push(writes.to_vec());
            return Ok(());
        }
        *fault = Fault::Refuses;
        Err(StoreError::Failed {
            place: "there".to_owned(),
            message: "full".to_owned(),
        })
    }
}
