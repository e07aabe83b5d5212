//! The commands, and the examples in their help.

use clap::Subcommand;

use pumice::cli::{ProgramCommand, ProgramServices, program_line};
use pumice_console::CommandError;
use pumice_measurement::bench;

use crate::{bound, curves, man, reproduce, tune};

/// Examples of each command, by its path below `pumice-lab`.
const EXAMPLES: &[(&str, &str)] = &[
    ("bench", "pumice-lab bench\npumice-lab bench --rate 500 --duration 30s"),
    (
        "bench fleet",
        "pumice-lab bench fleet\npumice-lab bench fleet --nodes 1000 --tasks 50000 --data-dir /tmp/fleet",
    ),
    (
        "bound",
        "pumice-lab bound\npumice-lab bound --with more-nodes.yaml -o json",
    ),
    (
        "reproduce",
        "pumice-lab reproduce traces\npumice-lab reproduce traces --workload default --policy 06-FGD --seed 42 --csv own.csv",
    ),
    (
        "curves",
        "pumice-lab curves nodes.csv tasks.csv --policy examples/fgd.yaml\n\
         pumice-lab curves nodes.csv tasks.csv --policy a.yaml --policy b.yaml --svg curves.svg",
    ),
    (
        "tune",
        "pumice-lab tune nodes.csv tasks.csv\n\
         pumice-lab tune nodes.csv tasks.csv --held-out other.csv --winner winner.yaml",
    ),
    ("man", "pumice-lab man --dir /usr/local/share/man/man1"),
];

/// Commands of `pumice-lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a load test against a server and report client-side latencies. Only `bench fleet` changes the server's state
    Bench(Box<bench::BenchArgs>),
    /// Print the allocated share of the devices, and the upper bound for any placement
    Bound(bound::BoundArgs),
    /// Repeat the published experiments of "Beware of Fragmentation" (USENIX ATC 2023) and compare the results
    Reproduce(reproduce::ReproduceArgs),
    /// Print allocation and fragmentation as work arrives, for one workload under several policies
    Curves(curves::CurvesArgs),
    /// Search a policy for shared devices on one workload, and evaluate it on others
    Tune(tune::TuneArgs),
    /// Write the man pages of `pumice` and `pumice-lab`, one for each command
    Man(man::ManArgs),
}

impl ProgramCommand for LabCommand {
    fn command_line() -> clap::Command {
        let command = program_line::<LabCommand>("pumice-lab", EXAMPLES);
        command.about("Measurements of a Pumice server, and experiments with its policies")
    }

    fn calls_server(&self) -> bool {
        matches!(self, LabCommand::Bench(_) | LabCommand::Bound(_))
    }

    async fn run(self) -> Result<(), CommandError> {
        match self {
            LabCommand::Bench(args) => bench::run(*args, &ProgramServices).await,
            LabCommand::Bound(args) => bound::run(args, &ProgramServices).await,
            LabCommand::Reproduce(args) => reproduce::run(&args),
            LabCommand::Curves(args) => curves::run(&args),
            LabCommand::Tune(args) => tune::run(&args),
            LabCommand::Man(args) => man::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_it_accepts() {
        LabCommand::command_line().debug_assert();
        for command in LabCommand::command_line().get_subcommands() {
            let path = command.get_name();
            assert!(EXAMPLES.iter().any(|(own, _)| *own == path), "`{path}` has no example");
        }
        for line in EXAMPLES.iter().flat_map(|(_, lines)| lines.lines()) {
            if let Err(error) = LabCommand::command_line().try_get_matches_from(line.split_whitespace()) {
                panic!("{line}: {error}");
            }
        }
    }
}
