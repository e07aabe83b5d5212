//! Memory of tables: blocks that another table does not share, and the entries in them.

use std::sync::Arc;

use super::{BlockTable, TableBlock, TableLeaf, last_block_not_after};
use crate::held_bytes::{COUNT_BYTES, HeldMemory};

/// Bytes of a shared block besides its items: two reference counts and the list's header.
const BLOCK_HEAD: usize = COUNT_BYTES + size_of::<Vec<usize>>();

fn block_bytes<T>(items: &Arc<Vec<T>>) -> usize {
    BLOCK_HEAD + items.capacity() * size_of::<T>()
}

impl<V: Clone, const ITEMS: usize> BlockTable<V, ITEMS> {
    /// Bytes of the blocks that the other table does not share.
    pub(crate) fn unshared_bytes(&self, other: &Self) -> usize {
        let mut sum = 0;
        self.visit_unshared(other, &mut |bytes| sum += bytes, |_| {});
        sum
    }

    /// Calls `visit` with each entry in a block that the other table does not share, and with the other's value of that
    /// name.
    pub(crate) fn unshared_entries<'t>(&'t self, other: &'t Self, mut visit: impl FnMut(&'t V, Option<&'t V>)) {
        self.visit_unshared(other, &mut |_| {}, |(leaf, near)| {
            for (at, (name, value)) in leaf.items.iter().enumerate() {
                let beside = near
                    .and_then(|near| near.items.get(at))
                    .filter(|(other, _)| Arc::ptr_eq(other, name));
                visit(value, beside.map_or_else(|| other.get(name), |(_, value)| Some(value)));
            }
        });
    }

    /// Visits unshared blocks, and each unshared leaf with the other table's leaf for its first name.
    fn visit_unshared<'t>(
        &'t self,
        other: &'t Self,
        block: &mut impl FnMut(usize),
        mut leaf: impl FnMut((&'t TableLeaf<V>, Option<&'t TableLeaf<V>>)),
    ) {
        if Arc::ptr_eq(&self.branches, &other.branches) {
            return;
        }
        block(block_bytes(&self.branches));
        for (at, branch) in self.branches.iter().enumerate() {
            let there = block_like(branch, at, &other.branches);
            if there.is_some_and(|there| Arc::ptr_eq(&there.items, &branch.items)) {
                continue;
            }
            block(block_bytes(&branch.items));
            for (leaf_at, own) in branch.items.iter().enumerate() {
                let near = there.and_then(|there| block_like(own, leaf_at, &there.items));
                if !near.is_some_and(|near| Arc::ptr_eq(&near.items, &own.items)) {
                    block(block_bytes(&own.items));
                    leaf((own, near));
                }
            }
        }
    }
}

/// Names belong to records.
impl<V: Clone + HeldMemory, const ITEMS: usize> HeldMemory for BlockTable<V, ITEMS> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let empty = Self::default();
        let older = older.unwrap_or(&empty);
        let mut sum = self.unshared_bytes(older);
        self.unshared_entries(older, |own, before| sum += own.held_bytes(before));
        sum
    }
}

/// Block of a list that begins as this one does, or in which its first name would be.
fn block_like<'t, T>(own: &TableBlock<T>, at: usize, list: &'t [TableBlock<T>]) -> Option<&'t TableBlock<T>> {
    let beside = list.get(at).filter(|beside| Arc::ptr_eq(&beside.first, &own.first));
    beside.or_else(|| list.get(last_block_not_after(list, &own.first)))
}

#[cfg(test)]
mod tests {
    use super::super::{SortedTable, TableEntry};

    fn table(names: usize) -> SortedTable<usize> {
        let mut table = SortedTable::default();
        for number in 0..names {
            table.insert(format!("n{number:06}").into(), number);
        }
        table
    }

    #[test]
    fn a_change_counts_its_path_and_a_whole_table_all_blocks() {
        let old = table(50_000);
        assert_eq!(old.unshared_bytes(&old.clone()), 0);
        let entry = size_of::<TableEntry<usize>>();
        let whole = old.unshared_bytes(&SortedTable::default());
        assert!((50_000 * entry..60_000 * entry).contains(&whole), "{whole}");
        let mut new = old.clone();
        *new.get_mut("n020000").unwrap() = 0;
        let (mut blocks, mut entries) = (0, Vec::new());
        new.visit_unshared(&old, &mut |_| blocks += 1, |_| {});
        new.unshared_entries(&old, |value, before| entries.push((*value, before.copied())));
        assert_eq!(blocks, 3, "a root, a branch and a leaf");
        let changed: Vec<_> = entries
            .iter()
            .filter(|(value, before)| Some(*value) != *before)
            .collect();
        assert_eq!(changed, [&(0, Some(20_000))]);
        assert!(entries.len() <= 128, "{}", entries.len());
        // An insertion moves the blocks behind it.
        for number in 0..200 {
            new.insert(format!("n010000-{number}").into(), number);
        }
        let mut blocks = 0;
        new.visit_unshared(&old, &mut |_| blocks += 1, |_| {});
        assert!(blocks < 16, "{blocks}");
    }
}
