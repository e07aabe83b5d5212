//! Store in memory that fails or waits on demand, for tests.

#![expect(clippy::disallowed_types, reason = "knobs of a test")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Durability, MemoryStore, Store, StoreError, StoreWrite, StoredState};

/// Ways in which the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreErrorMode {
    /// The store works.
    #[default]
    None,
    /// The store rejects writes and writes nothing.
    RejectWrites,
    /// The store writes the next write and reports an error; it rejects all later writes.
    FailAfterWrite,
}

/// Store that fails or waits on demand, as one server has it open. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FailingStore {
    content: MemoryStore,
    error_mode: Arc<Mutex<StoreErrorMode>>,
    /// Writes that succeeded, each with its content.
    written: Arc<Mutex<Vec<Vec<StoreWrite>>>>,
    flush_gate: Arc<FlushGate>,
}

/// Gate that the flush of each write passes.
#[derive(Debug, Default)]
struct FlushGate {
    state: Mutex<FlushGateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FlushGateState {
    /// Number of guards that hold the gate shut.
    held: usize,
    /// Number of writes that wait at the gate.
    waiting: usize,
}

impl FlushGate {
    fn change(&self, change: impl FnOnce(&mut FlushGateState)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait_while(&self, condition: impl Fn(&FlushGateState) -> bool) {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| condition(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn pass(&self) {
        self.change(|state| state.waiting += 1);
        self.wait_while(|state| state.held > 0);
        self.change(|state| state.waiting -= 1);
    }
}

/// Guard that makes the writes of a store wait, as a disk does whose flush hangs, until it is dropped.
#[derive(Debug)]
pub struct BlockedFlush(Arc<FlushGate>);

impl BlockedFlush {
    /// Waits until a write waits for its flush.
    pub fn wait_for_write(&self) {
        self.0.wait_while(|state| state.waiting == 0);
    }
}

impl Drop for BlockedFlush {
    fn drop(&mut self) {
        self.0.change(|state| state.held -= 1);
    }
}

impl FailingStore {
    /// Sets the way in which the store fails from now on.
    pub fn set_error_mode(&self, problem: StoreErrorMode) {
        *lock(&self.error_mode) = problem;
    }

    /// Makes writes wait until the guard is dropped.
    pub fn block_flush(&self) -> BlockedFlush {
        self.flush_gate.change(|state| state.held += 1);
        BlockedFlush(Arc::clone(&self.flush_gate))
    }

    /// Writes since the last call, in order.
    pub fn take_written(&self) -> Vec<Vec<StoreWrite>> {
        std::mem::take(&mut *lock(&self.written))
    }

    /// Content of the store.
    pub fn content(&self) -> MemoryStore {
        self.content.clone()
    }

    /// Crashes the server that has the store open: its later writes are lost. Returns the store that the next server
    /// opens.
    #[must_use]
    pub fn crash(&self) -> Self {
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
        self.flush_gate.pass();
        let mut problem = lock(&self.error_mode);
        if *problem != StoreErrorMode::RejectWrites {
            self.content.write(writes)?;
        }
        if *problem == StoreErrorMode::None {
            lock(&self.written).push(writes.to_vec());
            return Ok(());
        }
        *problem = StoreErrorMode::RejectWrites;
        Err(StoreError::Failed {
            place: "there".to_owned(),
            message: "full".to_owned(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
