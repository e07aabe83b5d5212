//! The command line of `pumice`: thin clients of the service, tables for people, exit codes for scripts. The second program,
//! `pumice-lab`, has the same frame (`cli/program.rs`).
//!
//! Exit codes: 0 success with a positive result; 1 negative result, or the request was rejected or failed; 2 invalid
//! command line; 3 the server is unreachable. For example, `pumice filter` exits with 1 if no node fits.

mod certs;
mod completions;
mod demo;
mod document_diff;
mod examples;
mod extender;
mod filter;
mod local_services;
mod place;
mod policy;
mod policy_check;
mod policy_cycles;
mod policy_diff;
mod policy_impact;
mod policy_jobs;
mod policy_witness;
mod profile;
mod program;
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

use clap::Subcommand;

use examples::EXAMPLES;
pub use local_services::ProgramServices;
pub use program::{ProgramArgs, ProgramCommand, program_line, run_program};
use pumice_console::CommandError;
use pumice_diagnosis::{capacity, explain};
use pumice_simulation::simulate;

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server; without options it listens on loopback and uses the built-in policy
    Serve(crate::config::ServeArgs),
    /// Show your identity and roles as the server sees them
    #[command(name = "whoami")]
    WhoAmI(whoami::WhoAmIArgs),
    /// Start a temporary server, load small clusters, print its decisions and check them
    Demo(pumice_simulation::demo::DemoArgs),
    /// Check, compare, test, push and roll back policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Load a cluster into the server, and show its state
    #[command(subcommand)]
    State(state::StateCommand),
    /// List open sessions, or close a session
    Sessions(sessions::SessionsArgs),
    /// List the resources reserved for jobs, or release a reservation
    #[command(subcommand)]
    Reservations(reservations::ReservationsCommand),
    /// Explain why a job or a task is pending, with numbers
    Explain(explain::ExplainArgs),
    /// List the nodes on which a task can run, and why other nodes are rejected
    Filter(filter::FilterArgs),
    /// List the best nodes for a task, with scores
    Score(score::ScoreArgs),
    /// Preview the placement of a whole job
    Place(place::PlaceArgs),
    /// Show how many more jobs of a shape fit, by queue and card, and which cards are stranded
    Capacity(capacity::CapacityArgs),
    /// Place a workload under several policies and compare the results; needs no server
    Simulate(simulate::SimulateArgs),
    /// Send a request of an HTTP extender protocol to the server and print the response
    #[command(subcommand)]
    Extender(extender::ExtenderCommand),
    /// Check, export or import the durable state of a stopped server, or of a store in etcd or in the Kubernetes API
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Create a CA and certificates for TLS
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// Print the JSON schema of a kind of document, for example for an editor
    Schema(schema_command::SchemaArgs),
    /// Print the completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Command line of the program `pumice`, with examples and exit codes at the end of each command's help.
pub fn command_line() -> clap::Command {
    let command = program_line::<CliCommand>("pumice", EXAMPLES);
    command.about("Scheduling-policy decisions over gRPC: where a task may run, and where it should")
}

/// Parses the command line of the process, runs the command, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    run_program::<CliCommand>()
}

impl ProgramCommand for CliCommand {
    fn command_line() -> clap::Command {
        command_line()
    }

    fn calls_server(&self) -> bool {
        !matches!(
            self,
            CliCommand::Serve(_)
                | CliCommand::Demo(_)
                | CliCommand::Certs(_)
                | CliCommand::Store(_)
                | CliCommand::Schema(_)
                | CliCommand::Completions(_)
        )
    }

    async fn run(self) -> Result<(), CommandError> {
        match self {
            CliCommand::Serve(args) => Box::pin(serve::run(args)).await,
            CliCommand::WhoAmI(args) => whoami::run(args).await,
            CliCommand::Demo(args) => Box::pin(demo::run(args)).await,
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
            CliCommand::Extender(command) => extender::run(command).await,
            CliCommand::Store(command) => store::run(&command),
            CliCommand::Certs(command) => certs::run(&command),
            CliCommand::Schema(args) => schema_command::run(&args),
            CliCommand::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_consistent() {
        super::command_line().debug_assert();
    }
}
