//! Numbers of tasks of a node by what they take.

use std::collections::BTreeMap;

use crate::held_bytes::HeldMemory;

/// Numbers of tasks by key. Without keys it takes one word.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::box_collection,
    reason = "most nodes have none, and an empty map takes three words"
)]
pub(super) struct KeyCounts<K>(Option<Box<BTreeMap<K, u32>>>);

impl<K> Default for KeyCounts<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: HeldMemory + Ord> HeldMemory for KeyCounts<K> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.0.held_bytes(older.map(|older| &older.0))
    }
}

impl<K: Clone + Ord> KeyCounts<K> {
    /// Adds a task of a key, or takes it off again.
    pub(super) fn count(&mut self, key: &K, adds: bool) {
        if adds {
            *self.0.get_or_insert_default().entry(key.clone()).or_default() += 1;
            return;
        }
        let Some(counts) = &mut self.0 else { return };
        if let Some(count) = counts.get_mut(key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(key);
            }
        }
        if counts.is_empty() {
            self.0 = None;
        }
    }

    /// Number of tasks of a key.
    pub(super) fn get(&self, key: &K) -> u32 {
        let counts = self.0.as_ref();
        counts.and_then(|counts| counts.get(key)).copied().unwrap_or(0)
    }

    /// True if there are no tasks.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Keys with tasks, in order, with the number of tasks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, u32)> {
        let counts = self.0.as_deref().map(BTreeMap::iter).unwrap_or_default();
        counts.map(|(key, count)| (key, *count))
    }
}
