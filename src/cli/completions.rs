//! `pumice completions`: completions of command lines for shells.

use clap::Args;
use clap_complete::Shell;

use super::command_line;
use pumice_console::{CommandError, output};

/// Arguments of `pumice completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell. For example: `source <(pumice completions bash)`. For all sessions, write the output to the shell's
    /// completion directory
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the completions.
pub(super) fn run(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line(), "pumice", &mut script);
    output::write(&String::from_utf8_lossy(&script))
}
