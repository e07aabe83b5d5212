//! The disk of a machine under the model checker: it may fail, and its machine may lose power between any two steps.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use shuttle::thread;

use crate::store::{Durability, Kept, MemoryStore, Store, StoreError, Write};

/// A machine that may have lost power: from then on nothing that it does is seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Power(Arc<AtomicBool>);

impl Power {
    pub(super) fn is_off(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn turn_off(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A disk works, refuses, or fails after it has written.
pub(super) const WORKS: u8 = 0;
pub(super) const REFUSES: u8 = 1;
pub(super) const LATE: u8 = 2;

/// A disk, whose writes take time.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) content: MemoryStore,
    pub(super) power: Power,
    pub(super) fault: Arc<AtomicU8>,
}

impl Store for Disk {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<Kept, StoreError> {
        self.content.load()
    }

    fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        thread::yield_now();
        let failed = |message: &str| {
            Err(StoreError::Failed {
                place: "the disk".to_owned(),
                message: message.to_owned(),
            })
        };
        let fault = self.fault.load(Ordering::SeqCst);
        if self.power.is_off() || fault == REFUSES {
            return failed("no power");
        }
        self.content.write(writes)?;
        thread::yield_now();
        if fault == LATE {
            failed("cannot be flushed")
        } else {
            Ok(())
        }
    }
}
