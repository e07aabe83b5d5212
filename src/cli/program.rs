//! Frame of a program with commands: it parses the command line with the values of a profile as defaults, runs the
//! command, and converts its error to an exit code. `pumice` and `pumice-lab` share it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::{examples, profile};
use pumice_console::args::nonempty_env;
use pumice_console::{ColorMode, CommandError, output};

/// Meaning of the exit codes, at the end of every help text and man page.
const EXIT_CODES: &str = "Exit codes:
  0  success with a positive result
  1  negative result (nothing fits, not placed, differs), or the request was rejected or failed
  2  invalid command line or file of profiles
  3  the server is unreachable or shutting down";

/// Time that threads have to end after the command.
const THREAD_STOP_TIME: Duration = Duration::from_millis(500);

/// Commands of a program.
pub trait ProgramCommand: Subcommand {
    /// Whole command line of the program.
    fn command_line() -> Command;

    /// True if the command calls a server. Only then the values of a profile apply to it.
    fn calls_server(&self) -> bool;

    /// Runs the command.
    ///
    /// # Errors
    /// The command failed, or its result is negative: for example, no node fits.
    fn run(self) -> impl Future<Output = Result<(), CommandError>>;
}

/// Command line of a program: options of every command, and one command.
#[derive(Debug, Parser)]
#[command(version = crate::build_info::version_line(), max_term_width = 110)]
pub struct ProgramArgs<C: Subcommand> {
    #[command(flatten)]
    profile: profile::ProfileArgs,
    /// When to colour output for people, for example `--color never`
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = "Options of every command"
    )]
    color: ColorMode,
    #[command(subcommand)]
    command: C,
}

/// Command line of the program of this name, with examples (by path below the program) and exit codes at the end of each
/// command's help.
pub fn program_line<C: Subcommand>(name: &'static str, examples: &[(&str, &str)]) -> Command {
    fn with_help(command: Command, path: &str, examples: &[(&str, &str)]) -> Command {
        let help = format!("{}{EXIT_CODES}", examples::help_text(examples, path));
        command.after_help(help).mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_help(below, path.trim(), examples)
        })
    }
    with_help(ProgramArgs::<C>::command().name(name), "", examples)
}

/// Parses the command line of the process. An invalid line ends the process with code 2. The values of a profile are
/// defaults: once the profile is known, the line is parsed again with them.
fn parse<C: ProgramCommand>() -> Result<C, CommandError> {
    let read = |command: Command| {
        let matches = command.get_matches();
        ProgramArgs::<C>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    };
    let args = read(C::command_line());
    output::set_color(args.color, nonempty_env("NO_COLOR").is_some());
    if !args.command.calls_server() {
        return Ok(args.command);
    }
    match args.profile.find()? {
        Some(profile) => Ok(read(profile.apply_as_defaults(C::command_line())).command),
        None => Ok(args.command),
    }
}

/// Parses the command line of the process, runs the command, and returns its exit code.
#[must_use]
pub fn run_program<C: ProgramCommand>() -> ExitCode {
    let ended = parse::<C>().and_then(|command| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(command.run());
        // A thread that waits for a disk which does not answer keeps no process.
        runtime.shutdown_timeout(THREAD_STOP_TIME);
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
