//! Command line as a tool: exit codes, profiles, colour, completions and manual; load generator and live view.

mod bench;
mod line;
mod simulate;
mod simulate_cycles;
mod simulate_victims;
mod top;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// Folder of one test, removed when it is dropped.
pub(crate) struct ToolTestFolder(PathBuf);

impl ToolTestFolder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pumice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for ToolTestFolder {
    fn drop(&mut self) {
        // Files left in a temporary folder do no harm.
        let _: Result<(), _> = std::fs::remove_dir_all(&self.0);
    }
}
