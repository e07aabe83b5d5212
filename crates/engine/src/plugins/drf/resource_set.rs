//! Small sets of resources, by position in the tree's order of resources.

use crate::held_bytes::held_bytes;
use smallvec::{SmallVec, smallvec};

/// Set of resources. Sets of one tree have equal lengths, and so compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceSet(SmallVec<[u64; 2]>);

held_bytes! { ResourceSet { 0 } }

impl ResourceSet {
    /// Empty set over `len` resources.
    pub(super) fn empty(len: usize) -> Self {
        Self(smallvec![0; len.div_ceil(64)])
    }

    /// Adds a resource to the set.
    pub(super) fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// True if the set has the resource.
    pub(super) fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// True if the sets have a resource in common.
    pub(super) fn intersects(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }
}
