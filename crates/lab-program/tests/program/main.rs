//! The program `pumice-lab`: load generator, bounds and man pages, beside real servers.
#![cfg(test)]

mod bench;
mod bound;
mod man;
mod profile;

use std::process::{Command, Output};

use pumice_test_support as support;
use pumice_test_support::process::program_file;

/// A program with an empty environment, and without a file of profiles.
fn program(file: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(file);
    command.args(arguments).env("XDG_CONFIG_HOME", "/nowhere");
    for variable in [
        "PUMICE_SERVER",
        "PUMICE_PROFILE",
        "PUMICE_CLIENT_CONFIG",
        "PUMICE_METRICS",
        "NO_COLOR",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Command `pumice-lab`.
fn lab(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_pumice-lab"), arguments)
}

/// Command `pumice`.
fn pumice(arguments: &[&str]) -> Command {
    program(&program_file(), arguments)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Server of this test program, whose limits a test lowers.
#[test]
#[ignore = "a server that other tests start"]
fn limited_server() {
    pumice_test_support::limited_server::limited_server();
}
