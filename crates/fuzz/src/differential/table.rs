//! Sorted table against a map of the standard library.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::model::SortedTable;

/// Puts and removes names; clones from half-way stay as they were.
pub fn compare_table(data: &[u8]) {
    let (mut table, mut plain) = (SortedTable::<usize>::default(), BTreeMap::new());
    let (mut clones, mut removed) = (None, 0);
    let half = data.len() / 6;
    for (at, step) in data.chunks_exact(3).enumerate() {
        let name: Arc<str> = format!(
            "{}{}",
            ["n", "node-", "ns/job-", ""][usize::from(step[0] >> 6)],
            step[1]
        )
        .into();
        if step[0] & 1 == 0 {
            assert_eq!(table.insert(Arc::clone(&name), at), plain.insert(name, at));
        } else {
            let gone = plain.remove(&name);
            removed += usize::from(gone.is_some());
            assert_eq!(table.remove(&name), gone);
        }
        if step[0] & 0x3f == 0x3e {
            // Many in a row, so that blocks split and merge.
            for number in 0..u16::from(step[2]) {
                let name: Arc<str> = format!("n{number}").into();
                if step[1] & 1 == 0 {
                    assert_eq!(table.insert(Arc::clone(&name), at), plain.insert(name, at));
                } else {
                    assert_eq!(table.remove(&name), plain.remove(&name));
                }
            }
        }
        if at == half {
            clones = Some((table.clone(), plain.clone()));
        }
    }
    let before = clones.clone();
    for (table, plain) in clones.into_iter().chain([(table.clone(), plain.clone())]) {
        assert_eq!(table.len(), plain.len(), "{removed} were removed");
        assert!(table.iter().eq(plain.iter()));
        for probe in ["", "n", "n1", "n199", "node-7", "ns/job-", "zzz"] {
            assert_eq!(table.get(probe), plain.get(probe));
            let after = plain.iter().filter(|(name, _)| probe.is_empty() || ***name > *probe);
            assert!(table.iter_after(probe).eq(after));
        }
    }
    let Some((old_table, old)) = before else { return };
    let mut names: Vec<&Arc<str>> = old.keys().chain(plain.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let expected = names.into_iter().map(|name| (name, old.get(name), plain.get(name)));
    let expected: Vec<_> = expected.filter(|(_, before, after)| before != after).collect();
    assert_eq!(old_table.differences(&table, |a, b| a == b), expected);
}
