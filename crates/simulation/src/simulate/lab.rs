//! `pumice simulate --reproduce` and `--curves`: experiments of the Lab, whose scores are those that a server gives.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use pumice_console::{CommandError, OutputFormat, output};
use pumice_lab::bound::workload_bound;
use pumice_lab::experiment::{ExperimentResult, LabWorkload};
use pumice_lab::measurement::METRICS;
use pumice_lab::policies::{LabPolicy, PublishedPolicy};
use pumice_lab::reproduction::{Reproduction, ReproductionError, Selection};
use pumice_lab::trace::{read_nodes, read_tasks};
use pumice_lab::workload::WorkloadTrace;
use pumice_lab::workload_bounds::{WorkloadBound, bounds_text};

/// Experiments that can be repeated.
const REPRODUCIBLE: &str = "fgd-atc23";
/// Number of threads.
const THREADS: usize = 2;

/// Arguments of the Lab.
#[derive(Debug, Args)]
pub(super) struct LabArgs {
    /// Repeat published experiments (fgd-atc23: "Beware of Fragmentation", USENIX ATC 2023); FILE is the directory of
    /// their traces, and --policy takes the names of the tables, such as 06-FGD
    #[arg(long, value_name = "PAPER", value_parser = [REPRODUCIBLE])]
    pub(super) reproduce: Option<String>,
    /// Allocation and fragmentation by arrived work, of a file of nodes and one of tasks, offered until they ask for 130 %
    /// of the devices
    #[arg(long, conflicts_with = "reproduce")]
    pub(super) curves: bool,
    /// Workload of the experiments, such as default or gpuspec33; may be repeated. Without it: all
    #[arg(long, value_name = "NAME", requires = "reproduce")]
    workload: Vec<String>,
    /// Seed of the experiments; may be repeated. Without it: those that were published
    #[arg(long, value_name = "NUMBER")]
    seed: Vec<i64>,
    /// Also write the curves as CSV, in the format of the published tables
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also print how much any placement could allocate at most
    #[arg(long)]
    bound: bool,
}

/// Files and policies that were named.
pub(super) struct LabCall<'a> {
    pub(super) lab: &'a LabArgs,
    pub(super) files: &'a [PathBuf],
    pub(super) policies: &'a [String],
    pub(super) svg: Option<&'a Path>,
    pub(super) format: OutputFormat,
}

impl LabCall<'_> {
    /// Runs the experiments; this takes seconds to minutes.
    pub(super) fn run(&self) -> Result<(), CommandError> {
        if self.lab.curves {
            return self.curves();
        }
        let [directory] = self.files else {
            let message = "error: --reproduce: name one directory, with the traces of the experiments";
            return Err(CommandError::Usage(message.to_owned()));
        };
        let selection = Selection {
            workloads: self.lab.workload.clone(),
            policies: self.published_policies()?,
            seeds: self.lab.seed.clone(),
        };
        let progress = output::progress(0, "experiments");
        let done = |finished: usize, all: usize| {
            progress.set_length(all as u64);
            progress.set_position(finished as u64);
        };
        let reproduction = Reproduction::run(directory, &selection, THREADS, &done).map_err(|error| failed(&error))?;
        progress.finish_and_clear();
        match self.format {
            OutputFormat::Table => output::document(&reproduction.text()),
            OutputFormat::Json => output::document(&format!("{:#}\n", reproduction_json(&reproduction))),
        }?;
        if self.lab.bound {
            let bounds = WorkloadBound::of(&reproduction, THREADS).map_err(|error| failed(&error.into()))?;
            output::document(&format!("\n{}", bounds_text(&bounds)))?;
        }
        write(self.lab.csv.as_deref(), || reproduction.csv())?;
        write(self.svg, || reproduction.svg())?;
        let comparison = reproduction.comparison();
        match comparison.values - comparison.equal {
            0 => Ok(()),
            different => Err(CommandError::message(format!(
                "error: {different} of {} published figures are not equal",
                comparison.values
            ))),
        }
    }

    fn published_policies(&self) -> Result<Vec<PublishedPolicy>, CommandError> {
        let find = |name: &String| {
            let found = PublishedPolicy::ALL
                .into_iter()
                .find(|own| own.name() == name || own.plugin() == name);
            found.ok_or_else(|| {
                let names: Vec<&str> = PublishedPolicy::ALL.iter().map(|own| own.name()).collect();
                CommandError::Usage(format!("error: --policy `{name}` is none of {}", names.join(", ")))
            })
        };
        self.policies.iter().map(find).collect()
    }

    /// Curves of any trace under any policies.
    fn curves(&self) -> Result<(), CommandError> {
        let ([nodes, tasks], false) = (self.files, self.policies.is_empty()) else {
            let message = "error: --curves: name a file of nodes, one of tasks, and at least one --policy FILE";
            return Err(CommandError::Usage(message.to_owned()));
        };
        let traces = read_nodes(nodes).and_then(|nodes| Ok((nodes, read_tasks(tasks)?)));
        let (nodes, read) = traces.map_err(|error| failed(&error.into()))?;
        let name = tasks
            .file_stem()
            .map_or_else(|| "workload".into(), |stem| stem.to_string_lossy().into_owned());
        let workload = LabWorkload::new(&name, WorkloadTrace::new(nodes, read));
        let seeds: &[i64] = if self.lab.seed.is_empty() {
            &[42]
        } else {
            &self.lab.seed
        };
        let mut rows = Vec::new();
        for given in self.policies {
            let path = Path::new(given);
            let document = std::fs::read_to_string(path).map_err(|error| CommandError::file_error(path, &error))?;
            let policy = LabPolicy::compile(&document)
                .map_err(|error| CommandError::message(format!("error: {given}: {error}")))?;
            let name = path
                .file_stem()
                .map_or_else(|| given.clone(), |stem| stem.to_string_lossy().into_owned());
            for seed in seeds {
                rows.push((name.clone(), *seed, workload.run(&policy, *seed)));
            }
        }
        match self.format {
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
        if self.lab.bound {
            for seed in seeds {
                output::line(&bound_line(&workload, *seed)?)?;
            }
        }
        let named = || {
            rows.iter()
                .map(|(name, seed, result)| (workload.name.as_str(), name.as_str(), *seed, result))
        };
        write(self.lab.csv.as_deref(), || pumice_lab::comparison::csv(named()))?;
        write(self.svg, || pumice_lab::reproduction::curves_svg(&named()))
    }
}

fn failed(error: &ReproductionError) -> CommandError {
    CommandError::message(format!("error: {error}"))
}

fn write(file: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), CommandError> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text()).map_err(|error| CommandError::file_error(file, &error))
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
    let bound = workload_bound(&workload.trace.seeded(seed));
    let bound = bound.map_err(|error| CommandError::message(format!("error: {error}")))?;
    let all = workload.trace.devices();
    let percent = bound.milli as f64 / all as f64 / 10.0;
    Ok(format!(
        "{} (seed {seed}): at most {percent:.2} % of {all} devices can be allocated, by a linear programme over {} shapes of nodes and {} classes of tasks",
        workload.name, bound.shapes, bound.classes
    ))
}

fn row_json(workload: &str, policy: &str, seed: i64, result: &ExperimentResult) -> serde_json::Value {
    let mut curves = serde_json::Map::new();
    for (metric, values) in METRICS.iter().zip(result.curves.all()) {
        curves.insert((*metric).to_owned(), json!(values));
    }
    json!({
        "workload": workload,
        "policy": policy,
        "seed": seed,
        "arrived": result.arrived,
        "notPlaced": result.unplaced,
        "curves": curves,
    })
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
