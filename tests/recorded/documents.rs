//! Tests that pages promise exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Names of all tests of the project that are run.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let files = files
        .into_iter()
        .map(|file| file.replace("#[tokio::test]", "#[test]").replace("async fn", "fn"));
    let files: Vec<String> = files.collect();
    let parts = files.iter().flat_map(|file| file.split("#[test]").skip(1));
    let named = parts.filter_map(|part| {
        let (before, name) = part.split_once("fn ")?;
        // Only attributes and comments may stand between; an ignored test does not count.
        let is_fair = |line: &str| line.is_empty() || line.starts_with("#[") || line.starts_with("//");
        let is_run = !before.contains("#[ignore") && before.lines().map(str::trim).all(is_fair);
        let name = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        is_run.then_some(name)
    });
    named.collect()
}

/// Row of a table of differences: its texts, and the tests that it names.
struct DifferenceRow {
    text: String,
    tests: Vec<String>,
}

fn rows() -> Vec<DifferenceRow> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (page, internals) = (read("docs/compatibility.md"), read("docs/internals/verification.md"));
    let differences = page.split_once("## Differences").unwrap().1;
    let surprising = internals.split_once("## Surprising").unwrap().1;
    let (mut rows, mut is_table) = (Vec::new(), false);
    for line in differences.lines().chain(surprising.lines()) {
        // A `|` in a cell is written `\|`.
        let line = line.replace("\\|", "/");
        if !line.starts_with('|') {
            is_table = false;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let last = *cells.last().unwrap();
        if last == "Test" {
            is_table = true;
        } else if is_table && !line.starts_with("|---") {
            let tests = last.split(',').map(|name| name.trim().trim_matches('`').to_owned());
            rows.push(DifferenceRow {
                text: line.clone(),
                tests: tests.filter(|name| !name.is_empty()).collect(),
            });
        }
    }
    rows
}

#[test]
fn every_difference_names_tests_that_are_there() {
    let (rows, tests) = (rows(), tests());
    assert!(rows.len() > 40, "the tables are read: {}", rows.len());
    for row in &rows {
        let is_difference = !row.text.contains("| The same: ");
        assert!(!row.tests.is_empty() || !is_difference, "no test: {}", row.text);
        for test in &row.tests {
            assert!(tests.contains(test), "`{test}` is no test: {}", row.text);
        }
    }
}
