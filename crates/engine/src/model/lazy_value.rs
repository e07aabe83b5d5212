//! Value that is computed at the first question about it and shared by copies until they differ in what it shows.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::held_bytes::HeldMemory;

/// Value of its owner, from the first question about it. Copies of the owner share it, computed or not.
pub(in crate::model) struct LazyValue<T>(Arc<OnceLock<T>>);

impl<T> LazyValue<T> {
    /// Value, which the first question computes.
    pub(in crate::model) fn get_or_init(&self, compute: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(compute)
    }

    /// Keeps the value only if it shows the owner as it is now. One that is not computed yet stays only if no copy of the owner
    /// has it: the copy may still be as the owner was, and whoever is asked first computes it for both.
    pub(in crate::model) fn retain(&mut self, shows: impl FnOnce(&T) -> bool) {
        let stays = match self.0.get() {
            Some(value) => shows(value),
            None => Arc::get_mut(&mut self.0).is_some(),
        };
        if !stays {
            *self = Self::default();
        }
    }
}

impl<T: HeldMemory> HeldMemory for LazyValue<T> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let is_shared = older.is_some_and(|older| Arc::ptr_eq(&self.0, &older.0));
        let own = self.0.get().filter(|_| !is_shared);
        own.map_or(0, |own| size_of::<T>() + own.held_bytes(None))
    }
}

impl<T> Default for LazyValue<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for LazyValue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Owners of equal content print the same, whoever asked about them.
impl<T> fmt::Debug for LazyValue<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LazyValue")
    }
}
