//! `pumice-lab curves`: allocation and fragmentation by arrived work, of one workload under several policies.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use pumice_console::{CommandError, OutputFormat, output};
use pumice_lab::bound::workload_bound;
use pumice_lab::experiment::{ExperimentResult, LabWorkload};
use pumice_lab::policies::LabPolicy;
use pumice_lab::trace::{file_stem, read_nodes};

use crate::experiments::{ExperimentArgs, row_json, write};

/// Arguments of `pumice-lab curves`. Tasks arrive until they request 130 % of the devices.
#[derive(Debug, Args)]
pub(crate) struct CurvesArgs {
    /// File of nodes in openb's format: `sn,cpu_milli,memory_mib,gpu,model`
    #[arg(value_name = "NODES")]
    nodes: PathBuf,
    /// File of tasks: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec`
    #[arg(value_name = "TASKS")]
    tasks: PathBuf,
    /// Policy document, such as examples/pack.yaml; repeatable
    #[arg(long, value_name = "FILE", required = true)]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    experiments: ExperimentArgs,
}

/// Runs the experiments of one workload under each policy.
pub(crate) fn run(args: &CurvesArgs) -> Result<(), CommandError> {
    let nodes = read_nodes(&args.nodes).map_err(CommandError::failed)?;
    let workload = LabWorkload::read(&nodes, &args.tasks).map_err(CommandError::failed)?;
    let seeds: &[i64] = if args.experiments.seed.is_empty() {
        &[42]
    } else {
        &args.experiments.seed
    };
    let mut rows = Vec::new();
    for path in &args.policy {
        let given = path.display();
        let document = std::fs::read_to_string(path).map_err(|error| CommandError::file_error(path, &error))?;
        let policy =
            LabPolicy::compile(&document).map_err(|error| CommandError::message(format!("error: {given}: {error}")))?;
        let name = file_stem(path);
        for seed in seeds {
            rows.push((name.clone(), *seed, workload.run(&policy, *seed)));
        }
    }
    match args.experiments.output {
        OutputFormat::Table => {
            for (name, seed, result) in &rows {
                output::line(&result_line(name, *seed, result, workload.trace.devices()))?;
            }
        }
        OutputFormat::Json => {
            let rows: Vec<serde_json::Value> = rows
                .iter()
                .map(|(name, seed, result)| row_json(&workload.name, name, *seed, result))
                .collect();
            output::document(&format!("{:#}\n", json!({ "experiments": rows })))?;
        }
    }
    if args.experiments.bound {
        for seed in seeds {
            output::line(&bound_line(&workload, *seed)?)?;
        }
    }
    let named = || {
        rows.iter()
            .map(|(name, seed, result)| (workload.name.as_str(), name.as_str(), *seed, result))
    };
    write(args.experiments.csv.as_deref(), || pumice_lab::comparison::csv(named()))?;
    write(args.experiments.svg.as_deref(), || {
        pumice_lab::reproduction::curves_svg(&named())
    })
}

fn result_line(name: &str, seed: i64, result: &ExperimentResult, devices: usize) -> String {
    let percent = result.last.used as f64 / devices as f64 / 10.0;
    format!(
        "{name} (seed {seed}): {percent:.2} % of {devices} devices allocated, {} of {} tasks not placed",
        result.unplaced, result.arrived
    )
}

/// Line about the bound of a workload of one seed: all its tasks on its empty nodes.
fn bound_line(workload: &LabWorkload, seed: i64) -> Result<String, CommandError> {
    let bound = workload_bound(&workload.trace.seeded(seed)).map_err(CommandError::failed)?;
    let all = workload.trace.devices();
    let percent = bound.milli as f64 / all as f64 / 10.0;
    Ok(format!(
        "{} (seed {seed}): at most {percent:.2} % of {all} devices can be allocated, by a linear programme over {} shapes of nodes and {} classes of tasks",
        workload.name, bound.shapes, bound.classes
    ))
}
