//! Disk of a machine under the model checker: it may fail, and its machine may lose power between any two steps.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use shuttle::thread;

use crate::store::{Durability, LogHead, LogNews, LogRead, MemoryStore, Store, StoreError, StoreWrite, StoredState};

/// Power of a machine: once it is off, nothing that the machine does is seen.
#[derive(Clone, Debug, Default)]
pub(super) struct PowerSwitch(Arc<AtomicBool>);

impl PowerSwitch {
    pub(super) fn is_off(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn turn_off(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Modes of a disk: it works, rejects writes, or fails after it has written.
pub(super) const DISK_WORKS: u8 = 0;
pub(super) const DISK_REJECTS: u8 = 1;
pub(super) const DISK_FAILS_LATE: u8 = 2;

/// Disk whose writes take time.
#[derive(Debug)]
pub(super) struct SimulatedDisk {
    pub(super) content: MemoryStore,
    pub(super) power: PowerSwitch,
    pub(super) error_mode: Arc<AtomicU8>,
}

impl Store for SimulatedDisk {
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
        thread::yield_now();
        let failed = |message: &str| {
            Err(StoreError::Failed {
                place: "the disk".to_owned(),
                message: message.to_owned(),
            })
        };
        let problem = self.error_mode.load(Ordering::SeqCst);
        if self.power.is_off() || problem == DISK_REJECTS {
            return failed("no power");
        }
        let head = self.content.append(expected, writes)?;
        thread::yield_now();
        if problem == DISK_FAILS_LATE {
            failed("cannot be flushed")
        } else {
            Ok(head)
        }
    }
}
