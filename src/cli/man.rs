//! `pumice man`: the manual, one page per command, made from the help texts.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use super::command_line;
use pumice_console::{CommandError, output};

/// Arguments of `pumice man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Write a page for each command into this folder; without it pumice(1) goes to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the manual.
pub(super) fn run(args: &ManArgs) -> Result<(), CommandError> {
    // Where and when it was built is nobody's business, and equal builds write equal pages.
    let mut command = command_line().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.dir else {
        let (_, page) = page(&command)?;
        return output::write(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(folder).map_err(|error| CommandError::file_error(folder, &error))?;
    let written = write(&command, folder)?;
    output::line(&format!("{} in {}", output::count(written, "page"), folder.display()))
}

/// Writes the page of a command and those of the commands below it; returns how many.
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
