//! List whose clones share what neither changes: a clone costs one pointer per group, and a change copies one group.

use std::iter::FlatMap;
use std::slice;
use std::sync::Arc;

use crate::held_bytes::HeldMemory;

/// List in groups of `GROUP` items, all full except the last one. Large items are stored behind an `Arc`, so that a copied
/// group shares them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedList<T, const GROUP: usize> {
    groups: Vec<Arc<Vec<T>>>,
}

impl<T: HeldMemory, const GROUP: usize> HeldMemory for SharedList<T, GROUP> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.groups.held_bytes(older.map(|older| &older.groups))
    }
}

impl<T, const GROUP: usize> SharedList<T, GROUP> {
    /// Number of items.
    pub fn len(&self) -> usize {
        let last = self.groups.last().map_or(0, |last| last.len());
        self.groups.len().saturating_sub(1) * GROUP + last
    }

    /// True if the list has no items.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Item at a position.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.groups.get(at / GROUP)?.get(at % GROUP)
    }

    /// First item. `None`: the list is empty.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.into_iter()
    }
}

impl<T: Clone, const GROUP: usize> SharedList<T, GROUP> {
    /// Item at a position, to change it.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        Arc::make_mut(self.groups.get_mut(at / GROUP)?).get_mut(at % GROUP)
    }

    /// All items in order, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.groups.iter_mut().flat_map(Arc::make_mut)
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.groups.last_mut().filter(|last| last.len() < GROUP) {
            Some(last) => Arc::make_mut(last).push(item),
            None => self.groups.push(Arc::new(vec![item])),
        }
    }
}

impl<T, const GROUP: usize> FromIterator<T> for SharedList<T, GROUP> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter().peekable();
        let mut groups = Vec::new();
        while items.peek().is_some() {
            groups.push(Arc::new(items.by_ref().take(GROUP).collect()));
        }
        Self { groups }
    }
}

impl<'a, T, const GROUP: usize> IntoIterator for &'a SharedList<T, GROUP> {
    type Item = &'a T;
    type IntoIter =
        FlatMap<slice::Iter<'a, Arc<Vec<T>>>, slice::Iter<'a, T>, fn(&'a Arc<Vec<T>>) -> slice::Iter<'a, T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held_bytes::COUNT_BYTES;

    #[test]
    fn a_change_copies_one_group() {
        let mut list: SharedList<u64, 4> = (0..10).collect();
        assert_eq!((list.len(), list.get(9), list.get(10)), (10, Some(&9), None));
        let old = list.clone();
        *list.get_mut(5).unwrap() = 50;
        list.push(10);
        let pointers = 4 * size_of::<Arc<Vec<u64>>>();
        let group = |capacity: usize| COUNT_BYTES + size_of::<Vec<u64>>() + capacity * size_of::<u64>();
        assert_eq!(list.held_bytes(Some(&old)), pointers + 2 * group(4));
        assert_eq!(
            list.iter().copied().collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 50, 6, 7, 8, 9, 10]
        );
        assert!(old.iter().copied().eq(0..10));
        list.iter_mut().for_each(|item| *item += 1);
        assert_eq!((list.first(), list.get(10)), (Some(&1), Some(&11)));
    }
}
