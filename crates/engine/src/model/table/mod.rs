//! Persistent map from names to values, sorted by name: a clone costs a few pointers, and a change copies one leaf.

mod blocks;
mod cursor;

use std::cmp::Ordering;
use std::sync::Arc;

pub use cursor::TableCursor;

/// Most entries in a leaf, and most leaves in a branch, of a table that weighs little.
const BLOCK_ITEMS: usize = 128;
/// Maximum of both in a table with frequent changes of single entries. A change then copies and frees a quarter as many
/// pointers.
const FEW_ITEMS: usize = 32;

type TableEntry<V> = (Arc<str>, V);
type TableLeaf<V> = TableBlock<TableEntry<V>>;
type TableBranch<V> = TableBlock<TableLeaf<V>>;

/// Block of a list with its first name: a search reads the first names without following each block's pointer.
#[derive(Clone, Debug)]
struct TableBlock<T> {
    first: Arc<str>,
    items: Arc<Vec<T>>,
}

trait NamedItem {
    fn name(&self) -> &Arc<str>;
}

impl<V> NamedItem for TableEntry<V> {
    fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl<T> NamedItem for TableBlock<T> {
    fn name(&self) -> &Arc<str> {
        &self.first
    }
}

fn block_of<T: NamedItem>(items: Vec<T>) -> TableBlock<T> {
    TableBlock {
        first: items.first().map(|item| Arc::clone(item.name())).unwrap_or_default(),
        items: Arc::new(items),
    }
}

/// Table with large blocks, for what has an entry for each task or node.
pub type SortedTable<V> = BlockTable<V, BLOCK_ITEMS>;
/// Table with small blocks, for what follows each change of a task.
pub(crate) type NimbleTable<V> = BlockTable<V, FEW_ITEMS>;

/// Names and values, sorted by name. Clones share all unchanged blocks.
///
/// Three levels of arrays. With blocks of 128 a branch has up to 128 × 128 entries. For example, a million entries are
/// a list of about a hundred branches.
#[derive(Clone, Debug)]
pub struct BlockTable<V, const ITEMS: usize> {
    branches: Arc<Vec<TableBranch<V>>>,
    len: usize,
}

/// Position of an entry: branch, leaf, and index in the leaf.
type EntryPosition = (usize, usize, usize);

/// Handle of a found name, for later access without a search. It is valid until a name is inserted or removed, also in
/// tables cloned from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHandle(EntryPosition);

impl<V, const ITEMS: usize> Default for BlockTable<V, ITEMS> {
    fn default() -> Self {
        Self {
            branches: Arc::default(),
            len: 0,
        }
    }
}

/// Equal names and values, in whatever blocks.
impl<V: Clone + PartialEq, const ITEMS: usize> PartialEq for BlockTable<V, ITEMS> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

/// Order of two names, byte by byte. Eight bytes are compared at once, which avoids a call for short names.
pub(crate) fn name_order(name: &str, other: &str) -> Ordering {
    let (name, other) = (name.as_bytes(), other.as_bytes());
    let ((words, _), (other_words, _)) = (name.as_chunks::<8>(), other.as_chunks::<8>());
    let mut pairs = words.iter().zip(other_words);
    if let Some((word, other)) = pairs.find(|(word, other)| word != other) {
        return u64::from_be_bytes(*word).cmp(&u64::from_be_bytes(*other));
    }
    // The rest of the shorter name is its last eight bytes, of which the first are known to be equal.
    let common = name.len().min(other.len());
    let last = |bytes: &[u8]| bytes.get(..common)?.last_chunk().copied().map(u64::from_be_bytes);
    match (last(name), last(other)) {
        (Some(word), Some(other_word)) => word.cmp(&other_word).then(name.len().cmp(&other.len())),
        _ => name.cmp(other),
    }
}

/// Position of the last block that does not start after `name`.
fn last_block_not_after<T>(parts: &[TableBlock<T>], name: &str) -> usize {
    if parts.len() < 2 {
        return 0;
    }
    parts
        .partition_point(|part| name_order(&part.first, name).is_le())
        .saturating_sub(1)
}

impl<V: Clone, const ITEMS: usize> BlockTable<V, ITEMS> {
    /// Entries that a full leaf allocates beyond its present ones.
    const SPARE_ITEMS: usize = ITEMS / 8;
    /// Entries that stay in a block after a split. Names that arrive in order fill leaves one after the other, so the split is
    /// near the end. Of a block of 128 these are 106: so many three-word entries nearly fill a block of 2,560 bytes, which is a size
    /// class of allocators.
    const SPLIT_POINT: usize = ITEMS * 106 / BLOCK_ITEMS;

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Position of a name, or its insertion point; `None`: the table is empty.
    fn search(&self, name: &str) -> Option<Result<EntryPosition, EntryPosition>> {
        let at = last_block_not_after(&self.branches, name);
        let leaves = &self.branches.get(at)?.items;
        let leaf_at = last_block_not_after(leaves, name);
        let entries = &leaves.get(leaf_at)?.items;
        let found = entries.binary_search_by(|(entry, _)| name_order(entry, name));
        Some(match found {
            Ok(found) => Ok((at, leaf_at, found)),
            Err(place) => Err((at, leaf_at, place)),
        })
    }

    /// Leaf at a position; the path to it is copied if clones share it.
    fn leaf_mut(&mut self, at: usize, leaf_at: usize) -> Option<&mut Vec<TableEntry<V>>> {
        let branches = Arc::make_mut(&mut self.branches);
        let leaves = Arc::make_mut(&mut branches.get_mut(at)?.items);
        Some(Arc::make_mut(&mut leaves.get_mut(leaf_at)?.items))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.entry(name).map(|(_, value)| value)
    }

    fn entry(&self, name: &str) -> Option<&TableEntry<V>> {
        let (at, leaf_at, found) = self.search(name)?.ok()?;
        self.branches.get(at)?.items.get(leaf_at)?.items.get(found)
    }

    /// Handle of a name, if it has a value.
    pub fn find(&self, name: &str) -> Option<TableHandle> {
        self.search(name)?.ok().map(TableHandle)
    }

    /// Value at a handle.
    pub fn at(&self, TableHandle((at, leaf_at, found)): TableHandle) -> Option<&V> {
        let entry = self.branches.get(at)?.items.get(leaf_at)?.items.get(found);
        entry.map(|(_, value)| value)
    }

    /// Mutable value at a handle; the path to it is copied if clones share it.
    pub fn at_mut(&mut self, TableHandle((at, leaf_at, found)): TableHandle) -> Option<&mut V> {
        self.leaf_mut(at, leaf_at)?.get_mut(found).map(|(_, value)| value)
    }

    /// Mutable value of a name; the path to it is copied if clones share it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.at_mut(self.find(name)?)
    }

    /// Stored key of a name, if it has a value.
    pub fn get_key(&self, name: &str) -> Option<&Arc<str>> {
        self.entry(name).map(|(name, _)| name)
    }

    /// True if the name has a value.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets the value of a name and returns the previous value.
    pub fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        match self.search(&name) {
            Some(Ok((at, leaf_at, found))) => {
                let (_, old) = self.leaf_mut(at, leaf_at)?.get_mut(found)?;
                return Some(std::mem::replace(old, value));
            }
            Some(Err(place)) => self.insert_at(place, name, value),
            None => Arc::make_mut(&mut self.branches).push(block_of(vec![block_of(vec![(name, value)])])),
        }
        self.len += 1;
        None
    }

    fn insert_at(&mut self, (at, leaf_at, place): EntryPosition, name: Arc<str>, value: V) {
        let branches = Arc::make_mut(&mut self.branches);
        let Some(branch) = branches.get_mut(at) else {
            return;
        };
        let leaves = Arc::make_mut(&mut branch.items);
        let Some(leaf) = leaves.get_mut(leaf_at) else { return };
        if place == 0 {
            // Only the very first leaf takes a name before its first name.
            leaf.first = Arc::clone(&name);
            branch.first = Arc::clone(&name);
        }
        let entries = Arc::make_mut(&mut leaf.items);
        grow(entries, Self::SPARE_ITEMS);
        entries.insert(place, (name, value));
        if entries.len() > ITEMS {
            let right = block_of(split(entries, Self::SPLIT_POINT));
            grow(leaves, Self::SPARE_ITEMS);
            leaves.insert(leaf_at + 1, right);
        }
        if leaves.len() > ITEMS {
            let right = block_of(split(leaves, Self::SPLIT_POINT));
            branches.insert(at + 1, right);
        }
    }

    /// Removes a name and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<V> {
        let (at, leaf_at, found) = self.search(name)?.ok()?;
        let branches = Arc::make_mut(&mut self.branches);
        let branch = branches.get_mut(at)?;
        let leaves = Arc::make_mut(&mut branch.items);
        let leaf = leaves.get_mut(leaf_at)?;
        let entries = Arc::make_mut(&mut leaf.items);
        let (_, value) = entries.remove(found);
        self.len -= 1;
        match entries.first() {
            Some((first, _)) if found == 0 => leaf.first = Arc::clone(first),
            Some(_) => {}
            None => drop(leaves.remove(leaf_at)),
        }
        match leaves.first() {
            Some(leaf) if leaf_at == 0 && found == 0 => branch.first = Arc::clone(&leaf.first),
            Some(_) => {}
            None => drop(branches.remove(at)),
        }
        Some(value)
    }

    /// Entries that differ in a newer table, by name, with their values in both. `same` compares two values; shared
    /// blocks are skipped.
    pub fn differences<'a>(&'a self, newer: &'a Self, same: impl Fn(&V, &V) -> bool) -> Vec<EntryDifference<'a, V>> {
        let (mut old, mut new) = (DiffCursor::at_start(self), DiffCursor::at_start(newer));
        let mut found = Vec::new();
        loop {
            if old.skip_shared(&mut new) {
                continue;
            }
            old.skip_equal(&mut new, &same);
            let order = match (old.entry(), new.entry()) {
                (None, None) => return found,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((before, _)), Some((after, _))) => before.cmp(after),
            };
            let before = old.entry().filter(|_| order.is_le());
            let after = new.entry().filter(|_| order.is_ge());
            let equal = before.zip(after).is_some_and(|((_, a), (_, b))| same(a, b));
            if let (Some((name, _)), false) = (before.or(after), equal) {
                found.push((name, before.map(|(_, value)| value), after.map(|(_, value)| value)));
            }
            if order.is_le() {
                old.step();
            }
            if order.is_ge() {
                new.step();
            }
        }
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.iter_after("")
    }

    /// The entries whose name is greater than `name` (all, for the empty name), by name.
    pub fn iter_after<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a V)> + 'a {
        let branches = self.branches.get(last_block_not_after(&self.branches, name)..);
        branches
            .unwrap_or_default()
            .iter()
            .flat_map(|branch| branch.items.iter())
            .skip_while(move |leaf| {
                let last = leaf.items.last();
                last.is_some_and(|(last, _)| !name.is_empty() && **last <= *name)
            })
            .flat_map(|leaf| leaf.items.iter())
            .skip_while(move |(entry, _)| !name.is_empty() && **entry <= *name)
            .map(|(entry, value)| (entry, value))
    }
}

/// Name, and its values in two tables.
pub type EntryDifference<'a, V> = (&'a Arc<str>, Option<&'a V>, Option<&'a V>);

/// Position in one of two compared tables.
struct DiffCursor<'a, V> {
    branches: &'a [TableBranch<V>],
    branch: usize,
    leaf: usize,
    at: usize,
}

impl<'a, V> DiffCursor<'a, V> {
    fn at_start<const ITEMS: usize>(table: &'a BlockTable<V, ITEMS>) -> Self {
        Self {
            branches: &table.branches,
            branch: 0,
            leaf: 0,
            at: 0,
        }
    }

    fn branch(&self) -> Option<&'a TableBranch<V>> {
        self.branches.get(self.branch)
    }

    fn leaf(&self) -> Option<&'a TableLeaf<V>> {
        self.branch()?.items.get(self.leaf)
    }

    fn entry(&self) -> Option<&'a TableEntry<V>> {
        self.leaf()?.items.get(self.at)
    }

    fn step(&mut self) {
        self.at += 1;
        if self.leaf().is_some_and(|leaf| self.at >= leaf.items.len()) {
            self.step_leaf();
        }
    }

    fn step_leaf(&mut self) {
        (self.leaf, self.at) = (self.leaf + 1, 0);
        if self.branch().is_some_and(|branch| self.leaf >= branch.items.len()) {
            (self.branch, self.leaf) = (self.branch + 1, 0);
        }
    }

    /// Skips entries that both leaves have at the same place.
    fn skip_equal(&mut self, other: &mut Self, same: &impl Fn(&V, &V) -> bool) {
        let leaves = self.leaf().zip(other.leaf()).filter(|_| self.at == other.at);
        let Some((one, next)) = leaves else { return };
        let rest = |leaf: &'a TableLeaf<V>| leaf.items.get(self.at..).unwrap_or_default();
        let pairs = rest(one).iter().zip(rest(next));
        let equal = pairs.take_while(|((name, value), (other, after))| Arc::ptr_eq(name, other) && same(value, after));
        // The last pair is left to the comparison, which knows where leaves end.
        let count = equal
            .count()
            .min(rest(one).len().min(rest(next).len()).saturating_sub(1));
        self.at += count;
        other.at += count;
    }

    /// Skips a branch or leaf that both tables share, if both cursors are at its start.
    fn skip_shared(&mut self, other: &mut Self) -> bool {
        if self.at != 0 || other.at != 0 {
            return false;
        }
        let branches = self.branch().zip(other.branch());
        if self.leaf == 0 && other.leaf == 0 && branches.is_some_and(|(a, b)| Arc::ptr_eq(&a.items, &b.items)) {
            self.branch += 1;
            other.branch += 1;
            return true;
        }
        let Some((one, next)) = branches else { return false };
        let rest = |branch: &'a TableBranch<V>, leaf: usize| branch.items.get(leaf..).unwrap_or_default();
        let pairs = rest(one, self.leaf).iter().zip(rest(next, other.leaf));
        let shared = pairs.take_while(|(a, b)| Arc::ptr_eq(&a.items, &b.items)).count();
        for (cursor, branch) in [(self, one), (other, next)] {
            cursor.leaf += shared;
            if cursor.leaf >= branch.items.len() {
                (cursor.branch, cursor.leaf) = (cursor.branch + 1, 0);
            }
        }
        shared > 0
    }
}

/// Reserves one entry and few more: a copied leaf must not double its size.
fn grow<T>(items: &mut Vec<T>, spare: usize) {
    if items.len() == items.capacity() {
        items.reserve_exact(spare);
    }
}

/// Splits off the upper entries. The lower ones move to a new block, since an allocator may not shrink the old one.
fn split<T>(items: &mut Vec<T>, at: usize) -> Vec<T> {
    let right = items.split_off(at);
    let mut left = Vec::with_capacity(items.len());
    left.append(items);
    *items = left;
    right
}

#[cfg(test)]
mod tests;
