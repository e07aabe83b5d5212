//! `pumice-lab tune`: searches a policy for shared devices on one workload, and evaluates it on others.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use pumice_console::output::TextTable;
use pumice_console::{CommandError, OutputFormat, output};
use pumice_lab::experiment::LabWorkload;
use pumice_lab::trace::read_nodes;
use pumice_lab::tuning::{TunedOutcome, TuningPlan, TuningResult, tune};

use crate::experiments::THREADS;

/// Arguments of `pumice-lab tune`.
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// File of nodes in openb's format: `sn,cpu_milli,memory_mib,gpu,model`
    #[arg(value_name = "NODES")]
    nodes: PathBuf,
    /// Files of tasks for the search: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec`
    #[arg(value_name = "TASKS", required = true)]
    tasks: Vec<PathBuf>,
    /// File of tasks for the evaluation of the best policies; repeatable. Without it: the same tasks in another order
    #[arg(long, value_name = "TASKS")]
    held_out: Vec<PathBuf>,
    /// Number of policies to try in addition to the published policies
    #[arg(long, value_name = "NUMBER", default_value_t = 24, value_parser = clap::value_parser!(u16).range(0..=2000))]
    samples: u16,
    /// Seed of the search; the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: i64,
    /// Write the winner as a policy document, for `pumice policy push`
    #[arg(long, value_name = "FILE")]
    winner: Option<PathBuf>,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Searches, and prints the front.
pub(crate) fn run(args: &TuneArgs) -> Result<(), CommandError> {
    let nodes = read_nodes(&args.nodes).map_err(CommandError::failed)?;
    let load = |files: &[PathBuf]| {
        let workloads = files.iter().map(|file| LabWorkload::read(&nodes, file));
        workloads.collect::<Result<Vec<_>, _>>().map_err(CommandError::failed)
    };
    let (training, held_out) = (load(&args.tasks)?, load(&args.held_out)?);
    let plan = TuningPlan {
        training: training.iter().collect(),
        held_out: held_out.iter().collect(),
        seed: args.seed,
        samples: usize::from(args.samples),
    };
    let progress = output::progress(u64::from(args.samples), "policies");
    let result = tune(&plan, THREADS, &|done| progress.set_position(done as u64)).map_err(CommandError::failed)?;
    progress.finish_and_clear();
    let document = result.front.get(result.winner).zip(training.first());
    let document = document.map(|(winner, workload)| winner.policy.document(&workload.typical));
    match args.output {
        OutputFormat::Table => show(&result),
        OutputFormat::Json => output::document(&format!("{:#}\n", as_json(&result, document.as_deref()))),
    }?;
    match (&args.winner, document) {
        (Some(file), Some(document)) => {
            std::fs::write(file, document).map_err(|error| CommandError::file_error(file, &error))
        }
        _ => Ok(()),
    }
}

fn show(result: &TuningResult) -> Result<(), CommandError> {
    let mut table = TextTable::new(["POLICY", "ALLOCATED", "PLACED", "HELD OUT", "PLACED", ""]);
    for (number, (own, held_out)) in result.front.iter().zip(&result.held_out).enumerate() {
        let percent = |value: f64| format!("{value:.2} %");
        let mark = if number == result.winner { "winner" } else { "" };
        table.row([
            own.policy.name(),
            percent(own.allocation),
            percent(own.placed),
            percent(held_out.allocation),
            percent(held_out.placed),
            mark.to_owned(),
        ]);
    }
    output::line(&format!(
        "{} policies tried; no other one exceeds these in both measures:",
        result.tried
    ))?;
    output::table(&table)
}

fn as_json(result: &TuningResult, document: Option<&str>) -> serde_json::Value {
    let outcome = |own: &TunedOutcome| json!({ "allocation": own.allocation, "placed": own.placed });
    let front = result.front.iter().zip(&result.held_out).enumerate();
    let front: Vec<serde_json::Value> = front
        .map(|(number, (own, held_out))| {
            json!({
                "policy": own.policy.name(),
                "search": outcome(own),
                "heldOut": outcome(held_out),
                "winner": number == result.winner,
            })
        })
        .collect();
    json!({ "tried": result.tried, "front": front, "document": document })
}
