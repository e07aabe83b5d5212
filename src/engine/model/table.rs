//! A persistent map from names to values, sorted by name: a clone costs a few pointers, a change copies one leaf.

use std::cmp::Ordering;
use std::sync::Arc;

/// Most entries in a leaf, and most leaves in a branch.
const WIDTH: usize = 128;

type Entry<V> = (Arc<str>, V);
type Leaf<V> = Arc<Vec<Entry<V>>>;
type Branch<V> = Arc<Vec<Leaf<V>>>;

/// Names and values, sorted by name. Clones share everything that neither of them changes.
///
/// Three levels of arrays: 128 × 128 entries per branch, so that a million entries are a list of some hundred branches.
#[derive(Clone, Debug)]
pub struct Table<V> {
    branches: Vec<Branch<V>>,
    len: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            branches: Vec::new(),
            len: 0,
        }
    }
}

/// Position of the last element that does not start after `name`.
fn last_not_after<T>(items: &[T], first: impl Fn(&T) -> &str, name: &str) -> usize {
    items.partition_point(|item| first(item) <= name).saturating_sub(1)
}

fn first_of_leaf<V>(leaf: &Leaf<V>) -> &str {
    leaf.first().map_or("", |(name, _)| name)
}

fn first_of_branch<V>(branch: &Branch<V>) -> &str {
    branch.first().map_or("", first_of_leaf)
}

impl<V: Clone> Table<V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.entry(name).map(|(_, value)| value)
    }

    fn entry(&self, name: &str) -> Option<&Entry<V>> {
        let branch = self
            .branches
            .get(last_not_after(&self.branches, first_of_branch, name))?;
        let leaf = branch.get(last_not_after(branch, first_of_leaf, name))?;
        let at = leaf.binary_search_by(|(entry, _)| (**entry).cmp(name)).ok()?;
        leaf.get(at)
    }

    /// The value of a name, to be changed; what clones share of the way to it is copied.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        // Looked up first: a name that is not there must not copy anything.
        self.get(name)?;
        let at = last_not_after(&self.branches, first_of_branch, name);
        let branch = Arc::make_mut(self.branches.get_mut(at)?);
        let leaf_at = last_not_after(branch, first_of_leaf, name);
        let leaf = Arc::make_mut(branch.get_mut(leaf_at)?);
        let found = leaf.binary_search_by(|(entry, _)| (**entry).cmp(name)).ok()?;
        leaf.get_mut(found).map(|(_, value)| value)
    }

    /// The name as it is kept, if it has a value.
    pub fn get_key(&self, name: &str) -> Option<&Arc<str>> {
        self.entry(name).map(|(name, _)| name)
    }

    /// True if the name has a value.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets the value of a name and returns the one before.
    pub fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        let at = last_not_after(&self.branches, first_of_branch, &name);
        if self.branches.is_empty() {
            self.branches.push(Arc::new(vec![Arc::new(Vec::new())]));
        }
        let branch = Arc::make_mut(self.branches.get_mut(at)?);
        let leaf_at = last_not_after(branch, first_of_leaf, &name);
        let leaf = Arc::make_mut(branch.get_mut(leaf_at)?);
        match leaf.binary_search_by(|(entry, _)| entry.cmp(&name)) {
            Ok(found) => {
                return leaf.get_mut(found).map(|(_, old)| std::mem::replace(old, value));
            }
            Err(place) => leaf.insert(place, (name, value)),
        }
        self.len += 1;
        if leaf.len() > WIDTH {
            let right = split(leaf);
            branch.insert(leaf_at + 1, Arc::new(right));
        }
        if branch.len() > WIDTH {
            let right = split(branch);
            self.branches.insert(at + 1, Arc::new(right));
        }
        None
    }

    /// Removes a name and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<V> {
        // Looked up first: a name that is not there must not copy anything.
        self.get(name)?;
        let at = last_not_after(&self.branches, first_of_branch, name);
        let branch = Arc::make_mut(self.branches.get_mut(at)?);
        let leaf_at = last_not_after(branch, first_of_leaf, name);
        let leaf = Arc::make_mut(branch.get_mut(leaf_at)?);
        let found = leaf.binary_search_by(|(entry, _)| (**entry).cmp(name)).ok()?;
        let (_, value) = leaf.remove(found);
        self.len -= 1;
        if leaf.is_empty() {
            branch.remove(leaf_at);
        }
        if branch.is_empty() {
            self.branches.remove(at);
        }
        Some(value)
    }

    /// The entries in which a newer table differs, by name: their values here and there. `same` says which values are
    /// equal; what both tables share is passed over unread.
    pub fn differences<'a>(&'a self, newer: &'a Self, same: impl Fn(&V, &V) -> bool) -> Vec<Difference<'a, V>> {
        let (mut old, mut new) = (Cursor::at_start(self), Cursor::at_start(newer));
        let mut found = Vec::new();
        loop {
            if old.skip_shared(&mut new) {
                continue;
            }
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
        self.after("")
    }

    /// The entries whose name is greater than `name` (all, for the empty name), by name.
    pub fn after<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a V)> + 'a {
        let branches = self
            .branches
            .get(last_not_after(&self.branches, first_of_branch, name)..);
        branches
            .unwrap_or_default()
            .iter()
            .flat_map(|branch| branch.iter())
            .skip_while(move |leaf| leaf.last().is_some_and(|(last, _)| !name.is_empty() && **last <= *name))
            .flat_map(|leaf| leaf.iter())
            .skip_while(move |(entry, _)| !name.is_empty() && **entry <= *name)
            .map(|(entry, value)| (entry, value))
    }
}

/// A name, and its values in two tables.
pub type Difference<'a, V> = (&'a Arc<str>, Option<&'a V>, Option<&'a V>);

/// A place in a table.
struct Cursor<'a, V> {
    branches: &'a [Branch<V>],
    branch: usize,
    leaf: usize,
    at: usize,
}

impl<'a, V> Cursor<'a, V> {
    fn at_start(table: &'a Table<V>) -> Self {
        Self {
            branches: &table.branches,
            branch: 0,
            leaf: 0,
            at: 0,
        }
    }

    fn branch(&self) -> Option<&'a Branch<V>> {
        self.branches.get(self.branch)
    }

    fn leaf(&self) -> Option<&'a Leaf<V>> {
        self.branch()?.get(self.leaf)
    }

    fn entry(&self) -> Option<&'a Entry<V>> {
        self.leaf()?.get(self.at)
    }

    fn step(&mut self) {
        self.at += 1;
        if self.leaf().is_some_and(|leaf| self.at >= leaf.len()) {
            self.step_leaf();
        }
    }

    fn step_leaf(&mut self) {
        (self.leaf, self.at) = (self.leaf + 1, 0);
        if self.branch().is_some_and(|branch| self.leaf >= branch.len()) {
            (self.branch, self.leaf) = (self.branch + 1, 0);
        }
    }

    /// Passes a branch or leaf over that both tables share, if both stand at its start.
    fn skip_shared(&mut self, other: &mut Self) -> bool {
        if self.at != 0 || other.at != 0 {
            return false;
        }
        let shared = |a: Option<&Branch<V>>, b: Option<&Branch<V>>| a.zip(b).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        if self.leaf == 0 && other.leaf == 0 && shared(self.branch(), other.branch()) {
            self.branch += 1;
            other.branch += 1;
            return true;
        }
        let shared = self.leaf().zip(other.leaf()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        if shared {
            self.step_leaf();
            other.step_leaf();
        }
        shared
    }
}

/// Cuts the upper half off. Names that arrive in order fill leaves one after the other, so they are cut near the end.
fn split<T>(items: &mut Vec<T>) -> Vec<T> {
    let right = items.split_off(items.len() * 3 / 4);
    items.shrink_to_fit();
    right
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_plain_map_and_old_clones_stay(steps in prop::collection::vec((any::<bool>(), 0u16..2_000), 0..3_000)) {
            let (mut table, mut plain) = (Table::default(), BTreeMap::new());
            let mut kept = None;
            for (i, (put, key)) in steps.iter().enumerate() {
                let name: Arc<str> = format!("n{key}").into();
                if *put {
                    prop_assert_eq!(table.insert(Arc::clone(&name), i), plain.insert(name, i));
                } else {
                    prop_assert_eq!(table.remove(&name), plain.remove(&name));
                }
                if i == steps.len() / 2 {
                    kept = Some((table.clone(), plain.clone()));
                }
            }
            for (table, plain) in kept.into_iter().chain([(table, plain)]) {
                prop_assert_eq!(table.len(), plain.len());
                prop_assert!(table.iter().eq(plain.iter()));
                for probe in ["", "n", "n1", "n1000", "n19", "n999", "zzz"] {
                    prop_assert_eq!(table.get(probe), plain.get(probe));
                    let after: Vec<_> = plain.iter().filter(|(name, _)| probe.is_empty() || ***name > *probe).collect();
                    prop_assert!(table.after(probe).eq(after));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn differences_are_what_a_plain_comparison_finds(
            steps in prop::collection::vec((any::<bool>(), 0u16..2_000), 0..3_000),
            cut in 0usize..3_000,
        ) {
            let (mut table, mut kept) = (Table::default(), Table::default());
            for (i, (put, key)) in steps.iter().enumerate() {
                let name: Arc<str> = format!("n{key}").into();
                if *put {
                    table.insert(name, i % 3);
                } else {
                    table.remove(&name);
                }
                if i <= cut {
                    kept = table.clone();
                }
            }
            let plain = |table: &Table<usize>| -> BTreeMap<Arc<str>, usize> {
                table.iter().map(|(name, value)| (Arc::clone(name), *value)).collect()
            };
            let (old, new) = (plain(&kept), plain(&table));
            let mut names: Vec<&Arc<str>> = old.keys().chain(new.keys()).collect();
            names.sort_unstable();
            names.dedup();
            let expected = names.into_iter().map(|name| (name, old.get(name), new.get(name)));
            let expected: Vec<_> = expected.filter(|(_, before, after)| before != after).collect();
            prop_assert_eq!(kept.differences(&table, |a, b| a == b), expected);
        }
    }

    #[test]
    fn holds_many_names_in_order() {
        let mut table = Table::default();
        for i in 0..50_000 {
            table.insert(format!("pod-{i:06}").into(), i);
        }
        assert_eq!((table.len(), table.get("pod-012345")), (50_000, Some(&12_345)));
        assert!(table.iter().map(|(_, i)| *i).eq(0..50_000));
        assert_eq!(table.after("pod-049998").map(|(_, i)| *i).collect::<Vec<_>>(), [49_999]);
    }
}
