//! Diagnostic commands for people, run as the real program.

mod devices;
mod explain;
mod explain_limits;
mod load_records;
mod load_warnings;
mod not_evaluated;
mod policy_diff;
mod policy_test;
mod queries;
mod releases;
mod stock_cluster;
mod watching;
mod what_if;

use serde_json::Value;

use crate::support::process::{ends, err, out, pumice};
use crate::support::{EmbeddedServer, TestDirectory};

/// Path of a file that is written into a directory.
fn written(directory: &TestDirectory, name: &str, text: &str) -> String {
    directory.file(name, text).to_str().unwrap().to_owned()
}

/// Runs `pumice … -o json`, which must succeed.
fn json(server: &EmbeddedServer, arguments: &[&str]) -> Value {
    let output = pumice(Some(server), &[arguments, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}
