//! The recordings of the reference, asked of the plugin's own functions; and what is better under `corrected`.

mod case;
mod corrected;
mod promise;
mod steps;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value as Json;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn cases(family: &str) -> Vec<Json> {
    let file = std::fs::File::open(directory().join(format!("capacity-card-{family}.json.gz"))).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut whole: Json = serde_json::from_str(&text).unwrap();
    whole["cases"].as_array_mut().map(std::mem::take).unwrap()
}

/// Runs all cases of a family.
fn run(family: &str) {
    let cases = cases(family);
    assert!(!cases.is_empty());
    let faults: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case["name"], case::run(case).err()?)))
        .collect();
    assert!(
        faults.is_empty(),
        "{family}: {} of {} differ\n{}",
        faults.len(),
        cases.len(),
        faults.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn discovery() {
    run("discovery");
}

#[test]
fn annotations() {
    run("annotations");
}

#[test]
fn config() {
    run("config");
}

#[test]
fn check_scalar() {
    run("check-scalar");
}

#[test]
fn task_request() {
    run("task-request");
}

#[test]
fn queue_attrs() {
    run("queue-attrs");
}

#[test]
fn queue_order() {
    run("queue-order");
}

#[test]
fn enqueue() {
    run("enqueue");
}

#[test]
fn allocatable() {
    run("allocatable");
}

#[test]
fn events() {
    run("events");
}

#[test]
fn node_order() {
    run("node-order");
}

#[test]
fn cycle() {
    run("cycle");
}
