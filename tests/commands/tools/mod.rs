//! Command line as a tool: exit codes, profiles, colour, completions and manual.

mod line;
mod simulate;
mod simulate_cycles;
mod simulate_evictions;
mod simulate_victims;

use std::process::{Command, Output};

use crate::support::TestDirectory;

/// Command `pumice` with an empty environment, and without a file of profiles.
fn pumice(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
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

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
