//! Store in memory that fails or waits on demand, for tests.

#![expect(clippy::disallowed_types, reason = "knobs of a test")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::{Durability, LogHead, LogNews, LogRead, MemoryStore, Store, StoreError, StoreWrite, StoredState};

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
    /// The store writes the next write and reports an error, as after a reply that was lost; it works from then on.
    LoseReply,
    /// The store does not write the next write and reports an error; it works from then on.
    LoseWrite,
    /// The store appends without a comparison of the head. Tests use this to prove that they detect the violation.
    SkipComparison,
}

/// Store that fails or waits on demand, as one server has it open. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FailingStore {
    content: MemoryStore,
    error_mode: Arc<Mutex<StoreErrorMode>>,
    /// Writes that succeeded, each with its content.
    written: Arc<Mutex<Vec<Vec<StoreWrite>>>>,
    flush_gate: Arc<FlushGate>,
    is_replica: bool,
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

    /// Store of one of several servers that append to the same log, which fails for this server only.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self {
            content: self.content.replica(),
            is_replica: true,
            ..Self::default()
        }
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

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        self.content.load()
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        self.content.head()
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.content.read_after(known)
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        self.content.follow(news)
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.flush_gate.pass();
        let mut problem = lock(&self.error_mode);
        let is_lost = matches!(*problem, StoreErrorMode::LoseReply | StoreErrorMode::LoseWrite);
        let head = match *problem {
            StoreErrorMode::RejectWrites | StoreErrorMode::LoseWrite => *expected,
            StoreErrorMode::SkipComparison => return self.content.append_to_head(writes),
            StoreErrorMode::None | StoreErrorMode::FailAfterWrite | StoreErrorMode::LoseReply => {
                self.content.append(expected, writes)?
            }
        };
        *problem = match *problem {
            StoreErrorMode::None => {
                lock(&self.written).push(writes.to_vec());
                return Ok(head);
            }
            StoreErrorMode::RejectWrites | StoreErrorMode::FailAfterWrite => StoreErrorMode::RejectWrites,
            StoreErrorMode::LoseReply | StoreErrorMode::LoseWrite | StoreErrorMode::SkipComparison => {
                StoreErrorMode::None
            }
        };
        let (place, message) = ("there".to_owned(), "full".to_owned());
        if is_lost && self.is_replica {
            return Err(StoreError::Unknown { place, message });
        }
        Err(StoreError::Failed { place, message })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
