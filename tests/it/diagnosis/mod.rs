//! Diagnostic commands for people, run as the real program.

mod devices;
mod explain;
mod explain_limits;
mod load_warnings;
mod not_evaluated;
mod policy_diff;
mod policy_test;
mod queries;
mod stock_cluster;
mod watching;
mod what_if;

use serde_json::Value;

use crate::support::EmbeddedServer;
use crate::support::process::{err, out, pumice};

/// Runs `pumice`, which must end with this code. Returns its output.
pub(crate) fn ends(server: Option<&EmbeddedServer>, arguments: &[&str], code: i32) -> String {
    let output = pumice(server, arguments);
    let said = format!("{}{}", out(&output), err(&output));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

/// Runs `pumice … -o json`, which must succeed.
fn json(server: &EmbeddedServer, arguments: &[&str]) -> Value {
    let output = pumice(Some(server), &[arguments, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}
