//! Tests of the table against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Puts and removes names, and compares the table and a clone from half-way with a plain map.
fn follow_plain_map<const ITEMS: usize>(steps: &[(bool, u16)]) -> Result<(), TestCaseError> {
    let (mut table, mut plain) = (BlockTable::<usize, ITEMS>::default(), BTreeMap::new());
    let mut clones = None;
    for (i, (put, key)) in steps.iter().enumerate() {
        let name: Arc<str> = format!("n{key}").into();
        if *put {
            prop_assert_eq!(table.insert(Arc::clone(&name), i), plain.insert(name, i));
        } else {
            prop_assert_eq!(table.remove(&name), plain.remove(&name));
        }
        if i == steps.len() / 2 {
            clones = Some((table.clone(), plain.clone()));
        }
    }
    for (table, plain) in clones.into_iter().chain([(table, plain)]) {
        prop_assert_eq!(table.len(), plain.len());
        prop_assert!(table.iter().eq(plain.iter()));
        for probe in ["", "n", "n1", "n1000", "n19", "n999", "zzz"] {
            prop_assert_eq!(table.get(probe), plain.get(probe));
            let after: Vec<_> = plain
                .iter()
                .filter(|(name, _)| probe.is_empty() || ***name > *probe)
                .collect();
            prop_assert!(table.iter_after(probe).eq(after));
        }
    }
    Ok(())
}

/// Compares the differences between a table and an earlier clone with the differences between plain maps.
fn compare_differences<const ITEMS: usize>(steps: &[(bool, u16)], cut: usize) -> Result<(), TestCaseError> {
    let mut table = BlockTable::<usize, ITEMS>::default();
    let mut clones = table.clone();
    for (i, (put, key)) in steps.iter().enumerate() {
        let name: Arc<str> = format!("n{key}").into();
        if *put {
            table.insert(name, i % 3);
        } else {
            table.remove(&name);
        }
        if i <= cut {
            clones = table.clone();
        }
    }
    let plain = |table: &BlockTable<usize, ITEMS>| -> BTreeMap<Arc<str>, usize> {
        table.iter().map(|(name, value)| (Arc::clone(name), *value)).collect()
    };
    let (old, new) = (plain(&clones), plain(&table));
    let mut names: Vec<&Arc<str>> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let expected = names.into_iter().map(|name| (name, old.get(name), new.get(name)));
    let expected: Vec<_> = expected.filter(|(_, before, after)| before != after).collect();
    prop_assert_eq!(clones.differences(&table, |a, b| a == b), expected);
    Ok(())
}

proptest! {
    #[test]
    fn equals_a_plain_map_and_old_clones_stay(steps in prop::collection::vec((any::<bool>(), 0u16..2_000), 0..3_000)) {
        follow_plain_map::<BLOCK_ITEMS>(&steps)?;
        follow_plain_map::<FEW_ITEMS>(&steps)?;
    }
}

proptest! {
    #[test]
    fn differences_are_what_a_plain_comparison_finds(
        steps in prop::collection::vec((any::<bool>(), 0u16..2_000), 0..3_000),
        cut in 0usize..3_000,
    ) {
        compare_differences::<BLOCK_ITEMS>(&steps, cut)?;
        compare_differences::<FEW_ITEMS>(&steps, cut)?;
    }
}

proptest! {
    #[test]
    fn handles_lead_to_values_and_old_clones_stay(
        names in prop::collection::btree_set(0u16..2_000, 1..600),
        changes in prop::collection::vec(0u16..2_000, 1..50),
    ) {
        let mut table = SortedTable::default();
        for key in &names {
            table.insert(format!("n{key}").into(), u32::from(*key));
        }
        let clones = table.clone();
        for key in &changes {
            let spot = table.find(&format!("n{key}"));
            prop_assert_eq!(spot.is_some(), names.contains(key));
            if let Some(spot) = spot {
                *table.at_mut(spot).unwrap() += 10_000;
                prop_assert_eq!(clones.at(spot), Some(&u32::from(*key)));
            }
        }
        for key in &names {
            let times = changes.iter().filter(|changed| *changed == key).count();
            let expected = u32::from(*key) + 10_000 * u32::try_from(times).unwrap();
            prop_assert_eq!(table.get(&format!("n{key}")), Some(&expected));
            prop_assert_eq!(clones.get(&format!("n{key}")), Some(&u32::from(*key)));
        }
    }
}

/// Names with long common prefixes, of lengths near multiples of a word.
fn name() -> impl Strategy<Value = String> {
    let end = prop_oneof!["[ab\u{0}é]{0,5}", "[a-c]{0,20}"];
    ("(|team/job-|a)", "a{0,9}", end).prop_map(|(start, middle, end)| start + &middle + &end)
}

proptest! {
    #[test]
    fn order_is_that_of_bytes(one in name(), other in name()) {
        prop_assert_eq!(name_order(&one, &other), one.as_bytes().cmp(other.as_bytes()));
        prop_assert_eq!(name_order(&one, &one), Ordering::Equal);
    }
}

#[test]
fn holds_many_names_in_order() {
    let mut table = SortedTable::default();
    for i in 0..50_000 {
        table.insert(format!("pod-{i:06}").into(), i);
    }
    let leaves = table.branches.iter().flat_map(|branch| branch.items.iter());
    let room: usize = leaves.map(|leaf| leaf.items.capacity()).sum();
    assert!(room < 50_000 + BLOCK_ITEMS, "room for {room} entries");
    assert_eq!((table.len(), table.get("pod-012345")), (50_000, Some(&12_345)));
    assert!(table.iter().map(|(_, i)| *i).eq(0..50_000));
    assert_eq!(
        table.iter_after("pod-049998").map(|(_, i)| *i).collect::<Vec<_>>(),
        [49_999]
    );
}
