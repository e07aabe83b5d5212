//! The command line: thin clients of the service, tables for people, exit codes for scripts.
//!
//! Exit codes: 0 done, and the answer is yes; 1 the answer is no, or the request was refused or failed; 2 the command line
//! itself is wrong; 3 no server answers.

mod certs;
mod completions;
mod demo;
mod document_diff;
mod examples;
mod filter;
mod local_services;
mod man;
mod place;
mod policy;
mod policy_check;
mod policy_diff;
mod policy_impact;
mod policy_jobs;
mod profile;
mod records;
mod reservations;
mod schema_command;
mod score;
mod serve;
mod sessions;
mod state;
mod state_cards;
mod state_forget;
mod state_load;
mod state_show;
mod state_sync;
mod state_watch;
mod store;
mod store_records;
mod whoami;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use local_services::ProgramServices;
use pumice_console::args::nonempty_env;
use pumice_console::{ColorMode, CommandError, output};
use pumice_diagnosis::{capacity, explain};
use pumice_measurement::{bench, extender, top};
use pumice_simulation::{simulate, tune};

/// Meaning of the exit codes, at the end of every help text and man page.
const EXIT_CODES: &str = "Exit codes:
  0  done; the answer is yes
  1  the answer is no (nothing fits, not placed, differs), or the request was refused or failed
  2  the command line or the file of profiles is wrong
  3  no server answers there, or it is shutting down";

/// Scheduling-policy decisions over gRPC: where a task may run, and where it should.
#[derive(Debug, Parser)]
#[command(name = "pumice", version = pumice::build_info::version_line(), max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    profile: profile::ProfileArgs,
    /// Colour what is written for people
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
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve decisions; without options on loopback, under the built-in policy
    Serve(pumice::config::ServeArgs),
    /// Show who the server takes you for, and what you may do
    #[command(name = "whoami")]
    WhoAmI(whoami::WhoAmIArgs),
    /// Start a server, load small clusters, show and check its answers; ends by itself
    Demo(pumice_simulation::demo::DemoArgs),
    /// Check, push and read policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Load a cluster, and show what the server knows
    #[command(subcommand)]
    State(state::StateCommand),
    /// List the open sessions, or end one
    Sessions(sessions::SessionsArgs),
    /// List what jobs were promised, and take it back
    #[command(subcommand)]
    Reservations(reservations::ReservationsCommand),
    /// Say why a job or a task waits, with numbers
    Explain(explain::ExplainArgs),
    /// Ask where a task may run
    Filter(filter::FilterArgs),
    /// Ask where a task should run
    Score(score::ScoreArgs),
    /// Ask where a whole job would go
    Place(place::PlaceArgs),
    /// How many more of a shape fit, by queue and card, and which cards are stranded
    Capacity(capacity::CapacityArgs),
    /// Place a workload under several policies and compare what comes of it; asks no server
    Simulate(simulate::SimulateArgs),
    /// Search a policy for shared devices on one workload, and judge it on others; asks no server
    Tune(tune::TuneArgs),
    /// Put load on a running server and measure what its callers feel; changes nothing there but with `fleet`
    Bench(bench::BenchArgs),
    /// Watch a server: load and latencies, state, queues by share
    Top(top::TopArgs),
    /// Try what a scheduler that asks by an extender protocol is answered
    #[command(subcommand)]
    Extender(extender::ExtenderCommand),
    /// Check, export or import the durable state of a server that is stopped
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Make an authority and certificates for TLS
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// Write the JSON schema of a kind of document, for editors and other checks
    Schema(schema_command::SchemaArgs),
    /// Write the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual, a page for each command
    Man(man::ManArgs),
}

/// The whole command line.
fn command_line() -> clap::Command {
    fn with_help(command: clap::Command, path: &str) -> clap::Command {
        let help = format!("{}{EXIT_CODES}", examples::help_text(path));
        command.after_help(help).mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_help(below, path.trim())
        })
    }
    with_help(Cli::command(), "")
}

/// Reads the process's command line; what is wrong with it ends the process with code 2. A profile's values are
/// defaults, so that they are known only once the profile is: then the line is read again.
fn parse() -> Result<Cli, CommandError> {
    let read = |command: clap::Command| {
        let matches = command.get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    };
    let cli = read(command_line());
    output::set_color(cli.color, nonempty_env("NO_COLOR").is_some());
    let serverless = matches!(
        cli.command,
        CliCommand::Serve(_)
            | CliCommand::Demo(_)
            | CliCommand::Certs(_)
            | CliCommand::Store(_)
            | CliCommand::Schema(_)
            | CliCommand::Completions(_)
            | CliCommand::Man(_)
    );
    if serverless {
        return Ok(cli);
    }
    match cli.profile.find()? {
        Some(profile) => Ok(read(profile.apply_as_defaults(command_line()))),
        None => Ok(cli),
    }
}

/// Time that threads have to end when the command is over.
const THREAD_STOP_TIME: Duration = Duration::from_millis(500);

/// Parses the process's command line, runs it, and says how it went.
#[must_use]
pub(crate) fn main() -> ExitCode {
    let ended = parse().and_then(|cli| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(run(cli.command));
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

async fn run(command: CliCommand) -> Result<(), CommandError> {
    match command {
        CliCommand::Serve(args) => Box::pin(serve::run(args)).await,
        CliCommand::WhoAmI(args) => whoami::run(args).await,
        CliCommand::Demo(args) => demo::run(args).await,
        CliCommand::Policy(command) => policy::run(command).await,
        CliCommand::State(command) => state::run(command).await,
        CliCommand::Sessions(args) => sessions::run(args).await,
        CliCommand::Reservations(command) => reservations::run(command).await,
        CliCommand::Explain(args) => explain::run(args, &ProgramServices).await,
        CliCommand::Filter(args) => filter::run(args).await,
        CliCommand::Score(args) => score::run(args).await,
        CliCommand::Place(args) => place::run(args).await,
        CliCommand::Capacity(args) => capacity::run(args, &ProgramServices).await,
        CliCommand::Simulate(args) => simulate::run(args, &ProgramServices).await,
        CliCommand::Tune(args) => tune::run(&args),
        CliCommand::Bench(args) => bench::run(args, &ProgramServices).await,
        CliCommand::Top(args) => top::run(args).await,
        CliCommand::Extender(command) => extender::run(command).await,
        CliCommand::Store(command) => store::run(&command),
        CliCommand::Certs(command) => certs::run(&command),
        CliCommand::Schema(args) => schema_command::run(&args),
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Man(args) => man::run(&args),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_consistent() {
        super::command_line().debug_assert();
    }
}
