//! Cursors: lookups of names in order find a name next to the last one without a search.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{BlockTable, EntryPosition, name_order};

/// Position of the last name that was looked up: a hint that is valid for any table.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableCursor(EntryPosition);

impl<V: Clone, const ITEMS: usize> BlockTable<V, ITEMS> {
    /// Value of a name, found without a search if it is next to the last one.
    pub fn get_with_cursor(&self, name: &str, near: &mut TableCursor) -> Option<&V> {
        let (at, leaf_at, found) = self.find_with_cursor(name, near)?.ok()?;
        let entry = self.branches.get(at)?.items.get(leaf_at)?.items.get(found);
        entry.map(|(_, value)| value)
    }

    /// Mutable value of the name that [`Self::get_with_cursor`] has just found; the path to it is copied if clones share it.
    pub(crate) fn found_mut(&mut self, near: &TableCursor) -> Option<&mut V> {
        let (at, leaf_at, found) = near.0;
        self.leaf_mut(at, leaf_at)?.get_mut(found).map(|(_, value)| value)
    }

    /// Sets the value of a name, found likewise. If the name has a value, its stored key stays.
    pub(crate) fn insert_with_cursor(&mut self, name: &Arc<str>, value: V, near: &mut TableCursor) {
        match self.find_with_cursor(name, near) {
            Some(Ok((at, leaf_at, found))) => {
                if let Some((_, old)) = self.leaf_mut(at, leaf_at).and_then(|leaf| leaf.get_mut(found)) {
                    *old = value;
                }
            }
            Some(Err(place)) => {
                self.insert_at(place, Arc::clone(name), value);
                self.len += 1;
                near.0 = place;
            }
            None => drop(self.insert(Arc::clone(name), value)),
        }
    }

    fn find_with_cursor(&self, name: &str, near: &mut TableCursor) -> Option<Result<EntryPosition, EntryPosition>> {
        let found = self.find_adjacent(name, near.0).or_else(|| self.search(name))?;
        near.0 = match found {
            Ok(place) => place,
            // A caller that looked a name up may insert it next.
            Err((at, leaf_at, place)) => (at, leaf_at, place.saturating_sub(1)),
        };
        Some(found)
    }

    /// Position of a name, or its insertion point, if that is at this place or just after it.
    fn find_adjacent(
        &self,
        name: &str,
        (at, leaf_at, found): EntryPosition,
    ) -> Option<Result<EntryPosition, EntryPosition>> {
        let leaves = &self.branches.get(at)?.items;
        let entries = &leaves.get(leaf_at)?.items;
        match name_order(&entries.get(found)?.0, name) {
            Ordering::Equal => return Some(Ok((at, leaf_at, found))),
            Ordering::Greater => return None,
            Ordering::Less => {}
        }
        let behind = (at, leaf_at, found + 1);
        let (next, place) = match entries.get(found + 1) {
            Some((next, _)) => (next, behind),
            None => match leaves.get(leaf_at + 1) {
                Some(leaf) => (&leaf.first, (at, leaf_at + 1, 0)),
                None => match self.branches.get(at + 1) {
                    Some(branch) => (&branch.first, (at + 1, 0, 0)),
                    None => return Some(Err(behind)),
                },
            },
        };
        match name_order(next, name) {
            Ordering::Equal => Some(Ok(place)),
            Ordering::Greater => Some(Err(behind)),
            Ordering::Less => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::SortedTable;
    use super::*;

    proptest! {
        #[test]
        fn finds_what_a_search_finds(
            steps in prop::collection::vec((0_u8..3, 0_u32..900, 0_u32..40), 0..120),
        ) {
            let (mut table, mut plain) = (SortedTable::default(), BTreeMap::new());
            let (mut near, mut clones) = (TableCursor::default(), Vec::new());
            // Some names in a row each time, and the places of former steps stay as they were.
            for (i, (what, first, names)) in steps.into_iter().enumerate() {
                for number in first..first + names {
                    let name: Arc<str> = format!("n{number:03}").into();
                    match what {
                        0 => {
                            table.insert_with_cursor(&name, i, &mut near);
                            plain.insert(name, i);
                        }
                        1 => prop_assert_eq!(table.get_with_cursor(&name, &mut near), plain.get(&name)),
                        _ => {
                            let is_known = table.get_with_cursor(&name, &mut near).is_some();
                            let own = table.found_mut(&near).filter(|_| is_known);
                            let expected = plain.get_mut(&name);
                            prop_assert_eq!(own.is_some(), expected.is_some());
                            for value in own.into_iter().chain(expected) {
                                *value = 10 * i;
                            }
                        }
                    }
                }
                clones.push((table.clone(), plain.clone()));
                if i % 7 == 6 {
                    let gone = format!("n{first:03}");
                    prop_assert_eq!(table.remove(&gone), plain.remove(&*gone));
                }
            }
            for (table, plain) in clones {
                prop_assert_eq!(table.len(), plain.len());
                prop_assert!(table.iter().eq(plain.iter()));
            }
        }
    }
}
