//! The command line: thin clients of the service, tables for people, exit codes for scripts.
//!
//! Exit codes: 0 done; 1 refused, failed or not true; 2 the command line itself is wrong.

mod connect;
mod decide;
mod demo;
mod failure;
mod filter;
mod output;
mod policy;
mod policy_check;
mod score;
mod serve;
mod state;
mod state_load;
mod state_show;
mod task;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use failure::Failure;

/// Scheduling-policy decisions over gRPC: where a task may run, and where it should.
#[derive(Debug, Parser)]
#[command(name = "pumice", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve decisions; without options on loopback, under the built-in policy
    Serve(crate::config::ServeArgs),
    /// Start a server, load small clusters, show and check its answers; ends by itself
    Demo(demo::DemoArgs),
    /// Check, push and read policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Load a cluster, and show what the server knows
    #[command(subcommand)]
    State(state::StateCommand),
    /// Ask where a task may run
    Filter(filter::FilterArgs),
    /// Ask where a task should run
    Score(score::ScoreArgs),
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// The reply as protobuf JSON.
    Json,
}

/// Which server is asked, and how its answer is printed.
#[derive(Debug, Args)]
struct Client {
    /// Address of the server
    #[arg(long, value_name = "URL", env = "PUMICE_SERVER", default_value = connect::DEFAULT_SERVER)]
    server: String,
    /// How the answer is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Parses the process's command line, runs it, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::from(error)),
    };
    match runtime.block_on(run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Policy(command) => policy::run(command).await,
        Command::State(command) => state::run(command).await,
        Command::Filter(args) => filter::run(args).await,
        Command::Score(args) => score::run(args).await,
    }
}

fn report(failure: &Failure) -> ExitCode {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{failure}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
