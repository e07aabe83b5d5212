//! The commands with which people understand what the service does, run as the real program.

mod explain;
mod explain_limits;
mod policy_diff;
mod policy_test;
mod watching;

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::Server;

/// Runs `pumice` against a server; `None`: one that is not there.
fn pumice(server: Option<&Server>, arguments: &[&str]) -> Output {
    let address = server.map_or_else(|| "127.0.0.1:1".to_owned(), |server| server.grpc.to_string());
    Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(arguments)
        .env("PUMICE_SERVER", address)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `pumice`, which must end with this code; what it said.
fn ends(server: Option<&Server>, arguments: &[&str], code: i32) -> String {
    let output = pumice(server, arguments);
    let said = format!("{}{}", out(&output), err(&output));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

/// Runs `pumice … -o json`, which must succeed.
fn json(server: &Server, arguments: &[&str]) -> Value {
    let output = pumice(Some(server), &[arguments, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}
