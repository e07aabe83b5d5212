//! `pumice-lab man`: the manual of both programs, one page per command, made from the help texts.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use pumice::cli::{ProgramCommand as _, command_line};
use pumice_console::{CommandError, output};

use crate::commands::LabCommand;

/// Arguments of `pumice-lab man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for one page for each command; without it pumice(1) is written to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the manual.
pub(crate) fn run(args: &ManArgs) -> Result<(), CommandError> {
    // Where and when it was built is not on the pages: equal builds write equal pages.
    let manual = [command_line(), LabCommand::command_line()].map(|line| {
        let mut line = line.disable_help_subcommand(true);
        line.build();
        line
    });
    let Some(folder) = &args.dir else {
        let [program, _] = &manual;
        let (_, page) = page(program)?;
        return output::write(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(folder).map_err(|error| CommandError::file_error(folder, &error))?;
    let mut written: usize = 0;
    for command in &manual {
        written = written.saturating_add(write(command, folder)?);
    }
    output::line(&format!("{} in {}", output::count(written, "page"), folder.display()))
}

/// Writes the pages of a command and of its subcommands; returns the number of pages.
fn write(command: &Command, folder: &Path) -> Result<usize, CommandError> {
    let (name, text) = page(command)?;
    let file = folder.join(name);
    std::fs::write(&file, text).map_err(|error| CommandError::file_error(&file, &error))?;
    let mut written: usize = 1;
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        written = written.saturating_add(write(below, folder)?);
    }
    Ok(written)
}

fn page(command: &Command) -> Result<(String, Vec<u8>), CommandError> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let man = Man::new(command.clone().name(name))
        .source(concat!("pumice ", env!("CARGO_PKG_VERSION")))
        .manual("Pumice");
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok((man.get_filename(), text))
}
