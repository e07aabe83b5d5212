//! Parts that `reproduce` and `curves` share: arguments of the output, rows of JSON.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use pumice_console::{CommandError, OutputFormat};
use pumice_lab::experiment::ExperimentResult;
use pumice_lab::measurement::METRICS;

/// Number of threads.
pub(crate) const THREADS: usize = 2;

/// Seeds and output of experiments.
#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// Seed of the experiments, such as 42; repeatable
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Vec<i64>,
    /// Also write the curves as CSV, in the format of the published tables
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Also write the curves as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Also print the upper bound of the allocation for any placement
    #[arg(long)]
    pub(crate) bound: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Writes a file, if one is named.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), CommandError> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text()).map_err(|error| CommandError::file_error(file, &error))
}

/// Result of an experiment as JSON.
pub(crate) fn row_json(workload: &str, policy: &str, seed: i64, result: &ExperimentResult) -> serde_json::Value {
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
