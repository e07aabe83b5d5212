//! Guarantees: what a server holds against its callers and its disk, each with the test that proves it.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, page, root};

/// One line of the tables.
struct Guarantee {
    /// Settings, limits and metrics.
    words: Vec<String>,
    test: String,
}

/// Words in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn guarantees() -> Vec<Guarantee> {
    let page = page("docs/internals/abuse-limits.md");
    let (_, section) = page.split_once("## What is guaranteed\n").unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.ends_with("| Test |"));
    let read = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split(" |").map(str::trim).collect();
        let [_, guaranteed, words, test] = cells[..] else {
            panic!("four cells: {row}")
        };
        assert!(!guaranteed.is_empty(), "{row}");
        let tests = quoted(test);
        assert_eq!(tests.len(), 1, "one test: {row}");
        Guarantee {
            words: quoted(words),
            test: tests[0].clone(),
        }
    };
    rows.map(read).collect()
}

/// Names of all tests, with the files that have one of the name.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in ["tests", "crates", "src"].iter().flat_map(|folder| files(folder, "rs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let Some((name, _)) = name.and_then(|name| name.split_once('('))
                && std::mem::take(&mut is_test)
            {
                tests.entry(name.to_owned()).or_default().insert(file.clone());
            }
        }
    }
    tests
}

#[test]
fn every_guarantee_names_a_test_of_its_own() {
    let (guarantees, tests) = (guarantees(), tests());
    assert!(guarantees.len() >= 60, "{} lines", guarantees.len());
    let mut named = BTreeSet::new();
    let mut problems = Vec::new();
    for Guarantee { test, .. } in &guarantees {
        match tests.get(test).map_or(0, BTreeSet::len) {
            0 => problems.push(format!("no test is named {test}")),
            1 => {}
            more => problems.push(format!("{more} files have a test named {test}")),
        }
        if !named.insert(test) {
            problems.push(format!("two guarantees name {test}"));
        }
    }
    assert_eq!(problems, [""; 0]);
}

#[test]
fn every_word_of_a_guarantee_is_a_setting_or_a_metric() {
    let (settings, operations) = (page("docs/settings.md"), page("docs/operations.md"));
    for word in guarantees().iter().flat_map(|guarantee| &guarantee.words) {
        let is_setting = settings.contains(&format!("\n| `{word}` | "));
        let is_metric = word.contains('_') && operations.contains(&format!("`{word}`"));
        assert!(is_setting || is_metric, "{word}");
    }
}

#[test]
fn every_promise_of_reliability_names_a_test_or_a_file_of_tests() {
    let tests = tests();
    let page = page("docs/internals/reliability.md");
    let (mut promises, mut is_of_promises) = (0, false);
    for row in page.lines() {
        // Other tables are about the fuzzer.
        is_of_promises = row.ends_with("| Test |") || is_of_promises && row.starts_with('|');
        if !is_of_promises || !row.starts_with("| ") || row.ends_with("| Test |") {
            continue;
        }
        let (promise, proof) = row.trim_matches('|').split_once(" | ").unwrap();
        let named: Vec<String> = quoted(proof)
            .into_iter()
            .filter(|name| !name.starts_with("make "))
            .collect();
        assert!(!promise.trim().is_empty(), "{row}");
        assert!(!named.is_empty() || proof.contains("]("), "{row}");
        for name in named {
            let is_file = name.contains('/') && root().join(&name).exists();
            assert!(
                is_file || tests.contains_key(&name),
                "{name} is neither a test nor a file"
            );
        }
        promises += 1;
    }
    assert!(promises >= 15, "{promises}");
}
