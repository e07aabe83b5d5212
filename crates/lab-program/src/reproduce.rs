//! `pumice-lab reproduce`: the published experiments, with the same scores as a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use pumice_console::{CommandError, OutputFormat, output};
use pumice_lab::policies::PublishedPolicy;
use pumice_lab::reproduction::{Reproduction, Selection};
use pumice_lab::workload_bounds::{WorkloadBound, bounds_text};

use crate::experiments::{ExperimentArgs, THREADS, row_json, write};

/// Arguments of `pumice-lab reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Directory with the traces of the experiments
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Policy by its name in the published tables, such as 06-FGD; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Workload, such as default or gpuspec33; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    #[command(flatten)]
    experiments: ExperimentArgs,
}

/// Runs the experiments, which takes seconds to minutes. Without a seed, the published seeds are used.
pub(crate) fn run(args: &ReproduceArgs) -> Result<(), CommandError> {
    let selection = Selection {
        workloads: args.workload.clone(),
        policies: published_policies(&args.policy)?,
        seeds: args.experiments.seed.clone(),
    };
    let progress = output::progress(0, "experiments");
    let done = |finished: usize, all: usize| {
        progress.set_length(all as u64);
        progress.set_position(finished as u64);
    };
    let reproduction = Reproduction::run(&args.directory, &selection, THREADS, &done).map_err(CommandError::failed)?;
    progress.finish_and_clear();
    match args.experiments.output {
        OutputFormat::Table => output::document(&reproduction.text()),
        OutputFormat::Json => output::document(&format!("{:#}\n", reproduction_json(&reproduction))),
    }?;
    if args.experiments.bound {
        let bounds = WorkloadBound::of(&reproduction, THREADS).map_err(CommandError::failed)?;
        output::document(&format!("\n{}", bounds_text(&bounds)))?;
    }
    write(args.experiments.csv.as_deref(), || reproduction.csv())?;
    write(args.experiments.svg.as_deref(), || reproduction.svg())?;
    let comparison = reproduction.comparison();
    match comparison.values - comparison.equal {
        0 => Ok(()),
        different => Err(CommandError::message(format!(
            "error: {different} of {} published figures are not equal",
            comparison.values
        ))),
    }
}

fn published_policies(names: &[String]) -> Result<Vec<PublishedPolicy>, CommandError> {
    let find = |name: &String| {
        let found = PublishedPolicy::ALL
            .into_iter()
            .find(|own| own.name() == name || own.plugin() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = PublishedPolicy::ALL.iter().map(|own| own.name()).collect();
            CommandError::Usage(format!("error: --policy `{name}` is none of {}", names.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn reproduction_json(reproduction: &Reproduction) -> serde_json::Value {
    let rows = reproduction.rows();
    let rows: Vec<serde_json::Value> = rows
        .map(|(workload, policy, seed, result)| row_json(workload, policy.name(), seed, result))
        .collect();
    let comparison = reproduction.comparison();
    json!({
        "experiments": rows,
        "comparison": {
            "experiments": comparison.experiments,
            "values": comparison.values,
            "equal": comparison.equal,
            "firstDifference": comparison.first_difference,
            "largestRandomDistance": comparison.largest_random_distance(),
        },
    })
}
