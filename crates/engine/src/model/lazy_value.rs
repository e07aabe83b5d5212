//! Value that is computed at the first question about it and shared by copies until they differ in what it shows.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Value of its owner, from the first question about it. Copies of the owner share it, computed or not.
pub(in crate::model) struct LazyValue<T>(Arc<OnceLock<T>>);

impl<T> LazyValue<T> {
    /// Value, which the first question computes.
    pub(in crate::model) fn get_or_init(&self, compute: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(compute)
    }

    /// Value, if somebody asked about it.
    pub(in crate::model) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// True if two owners share the value.
    pub(in crate::model) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
