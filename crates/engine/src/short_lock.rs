//! Short lock: the crate's only mutex. Its interface takes a closure: all code under the lock is in one place. Debug
//! builds check that threads do not write to a store under it.

#![expect(
    clippy::disallowed_types,
    reason = "every other lock of the crate is made of this one"
)]

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::sync::{Mutex, PoisonError};

thread_local! {
    /// Number of short locks that this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Value behind a lock that is held for a few operations in memory: async threads may wait for it. What may wait itself,
/// or takes long, belongs to one thread, which publishes whole values (`ArcSwap`).
#[derive(Default)]
pub struct ShortLock<T>(Mutex<T>);

impl<T> ShortLock<T> {
    /// Lock around a value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Result of a function of the value. The function does no I/O and computes nothing long.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _held = HeldMark::new();
        work(&mut value)
    }
}

impl<T> Debug for ShortLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShortLock")
    }
}

/// Mark that this thread holds one more short lock; removed when dropped.
struct HeldMark;

impl HeldMark {
    fn new() -> Self {
        HELD.set(HELD.get() + 1);
        Self
    }
}

impl Drop for HeldMark {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// Checks, in debug builds, that this thread does not hold a short lock. Code that may wait for a disk calls this
/// first.
pub fn assert_unlocked() {
    debug_assert_eq!(HELD.get(), 0, "a short lock is held across I/O");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_under_a_lock_is_noticed() {
        let lock = ShortLock::new(1);
        assert_unlocked();
        assert_eq!(lock.with(|value| std::mem::replace(value, 2)), 1);
        assert_unlocked();
        let under = std::panic::catch_unwind(|| lock.with(|_| assert_unlocked()));
        assert!(under.is_err(), "the check passed under the lock");
        // The lock is usable after a panic, and no longer held.
        assert_eq!(lock.with(|value| *value), 2);
        assert_unlocked();
    }
}
