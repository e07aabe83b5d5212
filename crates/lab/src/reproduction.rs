//! Reproduction of the published experiments from a directory with their traces.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use pumice_plot::{PlotAxis, PlotLine, PlotPanel, render_svg};

use crate::comparison::{PublishedTable, TableComparison, csv, parse_csv};
use crate::experiment::{Experiment, ExperimentResult, LabWorkload, run_all};
use crate::measurement::{COLUMNS, METRICS};
use crate::policies::{LabPolicyError, PublishedPolicy};
use crate::trace::{TraceError, file_stem, read_nodes};

/// Prefix of the files of tasks, which is part of the names of workloads in tables.
pub const TASK_PREFIX: &str = "openb_pod_list_";
/// File of the nodes in the directory of traces.
pub const NODE_FILE: &str = "openb_node_list_gpu_node.csv";
/// File of published rows.
pub const PUBLISHED_FILE: &str = "published.csv";
/// Seeds of the published experiments.
pub const SEEDS: std::ops::RangeInclusive<i64> = 42..=51;

/// Choice of experiments; an empty list: all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of workloads, with or without [`TASK_PREFIX`].
    pub workloads: Vec<String>,
    /// Policies to run. Empty: all published policies.
    pub policies: Vec<PublishedPolicy>,
    /// Seeds to run. Empty: the published seeds.
    pub seeds: Vec<i64>,
}

/// Error of a reproduction of published experiments.
#[derive(Debug, thiserror::Error)]
pub enum ReproductionError {
    /// A file of the traces.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A policy does not compile.
    #[error(transparent)]
    Policy(#[from] LabPolicyError),
    /// The directory or the selection.
    #[error("{0}")]
    Selection(String),
}

/// Experiments with their results.
#[derive(Clone, Debug)]
pub struct Reproduction {
    workloads: Vec<LabWorkload>,
    experiments: Vec<Experiment>,
    results: Vec<ExperimentResult>,
    /// Published rows of the directory; empty: there are none.
    published: PublishedTable,
}

impl Reproduction {
    /// Runs the selected experiments on so many threads. `done` is called with the number that are done, and of all.
    ///
    /// # Errors
    /// A file is missing or malformed, or nothing is selected.
    pub fn run(
        directory: &Path,
        selection: &Selection,
        threads: usize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, ReproductionError> {
        let nodes = read_nodes(&directory.join(NODE_FILE))?;
        let mut workloads = Vec::new();
        for file in task_files(directory)? {
            let name = file_stem(&file);
            let short = name.strip_prefix(TASK_PREFIX).unwrap_or(&name);
            let asked = &selection.workloads;
            if asked.is_empty() || asked.iter().any(|own| *own == name || own == short) {
                workloads.push(LabWorkload::read(&nodes, &file)?);
            }
        }
        if workloads.is_empty() {
            let message = format!("{}: no file `{TASK_PREFIX}…csv` is selected", directory.display());
            return Err(ReproductionError::Selection(message));
        }
        let published = match std::fs::read_to_string(directory.join(PUBLISHED_FILE)) {
            Ok(text) => parse_csv(&text).map_err(|reason| {
                let file = directory.join(PUBLISHED_FILE);
                ReproductionError::Selection(format!("{}: {reason}", file.display()))
            })?,
            Err(_) => PublishedTable::new(),
        };
        let experiments = selection.experiments(workloads.len());
        let all = experiments.len();
        let results = run_all(&workloads, &experiments, threads, &|finished| done(finished, all))?;
        Ok(Self {
            workloads,
            experiments,
            results,
            published,
        })
    }

    /// Workloads, by name.
    pub fn workloads(&self) -> &[LabWorkload] {
        &self.workloads
    }

    /// Experiments in their order: workload, policy, seed, result.
    pub fn rows(&self) -> impl Iterator<Item = (&str, PublishedPolicy, i64, &ExperimentResult)> {
        let all = self.experiments.iter().zip(&self.results);
        all.filter_map(|(own, result)| {
            let workload = self.workloads.get(own.workload)?;
            Some((workload.name.as_str(), own.policy, own.seed, result))
        })
    }

    /// Table in the published format.
    pub fn csv(&self) -> String {
        csv(self
            .rows()
            .map(|(workload, policy, seed, result)| (workload, policy.name(), seed, result)))
    }

    /// Comparison with the published rows of the directory.
    pub fn comparison(&self) -> TableComparison {
        TableComparison::of(self.rows(), &self.published)
    }

    /// Means over the seeds at a column, by workload and policy, in the order of [`METRICS`].
    pub fn means(&self, column: usize) -> BTreeMap<(String, PublishedPolicy), [f64; 3]> {
        let mut sums: BTreeMap<(String, PublishedPolicy), (f64, [f64; 3])> = BTreeMap::new();
        for (workload, policy, _, result) in self.rows() {
            let (count, sum) = sums.entry((workload.to_owned(), policy)).or_default();
            *count += 1.0;
            for (sum, row) in sum.iter_mut().zip(result.curves.all()) {
                *sum += row.get(column).copied().flatten().unwrap_or(f64::NAN);
            }
        }
        sums.into_iter()
            .map(|(key, (count, sum))| (key, sum.map(|sum| sum / count)))
            .collect()
    }

    /// Result for people: means at 100 and 130 percent, and the comparison.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<32} {:<17} {:>9} {:>9} {:>11} {:>11}\n",
            "WORKLOAD", "POLICY", "ALLOC 100", "ALLOC 130", "FRAGGED 100", "RATIO 130"
        );
        let last = self.means(COLUMNS - 1);
        // Writing to a string cannot fail.
        for ((workload, policy), [alloc, amount, _]) in self.means(100) {
            let end = last.get(&(workload.clone(), policy)).copied().unwrap_or([f64::NAN; 3]);
            let [alloc_end, _, ratio_end] = end;
            let name = policy.name();
            let _ = writeln!(
                text,
                "{workload:<32} {name:<17} {alloc:>9.2} {alloc_end:>9.2} {amount:>11.2} {ratio_end:>11.2}"
            );
        }
        let comparison = self.comparison();
        if self.published.is_empty() {
            let _ = writeln!(text, "\nNothing to compare: the directory has no {PUBLISHED_FILE}.");
            return text;
        }
        let TableComparison {
            experiments,
            values,
            equal,
            first_difference,
            random,
        } = &comparison;
        let _ = writeln!(
            text,
            "\n{experiments} deterministic experiments are published here: {equal} of {values} values are equal to the last digit."
        );
        if let Some(difference) = first_difference {
            let _ = writeln!(text, "First difference: {difference}");
        }
        if let Some(distance) = comparison.largest_random_distance() {
            let _ = writeln!(
                text,
                "Random: {} means over seeds are within {distance:.3} points of the published ones.",
                random.len()
            );
        }
        text
    }

    /// Curves of a workload, means over seeds, own ones beside the published ones.
    pub fn svg(&self) -> String {
        let mut panels = Vec::new();
        for workload in &self.workloads {
            let short = workload.name.strip_prefix(TASK_PREFIX).unwrap_or(&workload.name);
            for (metric, name) in METRICS.iter().enumerate() {
                let own = self.rows().filter(|(own, ..)| *own == workload.name);
                let own = own.map(|(_, policy, _, result)| {
                    (
                        policy.name(),
                        result.curves.all().get(metric).copied().unwrap_or_default(),
                    )
                });
                panels.push(panel(&format!("{short}: {name}"), own));
                let published = self.published.iter().filter(|((own, ..), _)| *own == workload.name);
                let published = published
                    .filter_map(|((_, policy, _), rows)| Some((policy.as_str(), rows.get(metric)?.as_slice())));
                let published = panel(&format!("{short}: {name}, as published"), published);
                if !published.lines.is_empty() {
                    panels.push(published);
                }
            }
        }
        render_svg(
            "Allocation and fragmentation by arrived work, in percent of the devices",
            &panels,
            2,
        )
    }
}

/// Panel of means over seeds, a line for each policy.
fn panel<'c>(title: &str, rows: impl Iterator<Item = (&'c str, &'c [Option<f64>])>) -> PlotPanel {
    let mut sums: BTreeMap<&str, (f64, Vec<f64>)> = BTreeMap::new();
    for (policy, row) in rows {
        let (count, sum) = sums.entry(policy).or_insert_with(|| (0.0, vec![0.0; COLUMNS]));
        *count += 1.0;
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += value.unwrap_or(0.0);
        }
    }
    let line = |(policy, (count, sum)): (&str, (f64, Vec<f64>))| PlotLine {
        name: policy.to_owned(),
        points: sum
            .into_iter()
            .enumerate()
            .map(|(column, sum)| (column as f64, sum / count))
            .collect(),
    };
    PlotPanel {
        title: title.to_owned(),
        x: PlotAxis::linear("arrived, % of GPUs"),
        y: PlotAxis::linear("%"),
        lines: sums.into_iter().map(line).collect(),
    }
}

/// Curves of one workload, means over seeds, a line for each policy.
pub fn curves_svg<'r>(rows: &(impl Iterator<Item = (&'r str, &'r str, i64, &'r ExperimentResult)> + Clone)) -> String {
    let of = |(metric, name): (usize, &&str)| {
        let rows = rows.clone();
        let rows =
            rows.map(|(_, policy, _, result)| (policy, result.curves.all().get(metric).copied().unwrap_or_default()));
        panel(name, rows)
    };
    let panels: Vec<PlotPanel> = METRICS.iter().enumerate().map(of).collect();
    render_svg(
        "Allocation and fragmentation by arrived work, in percent of the devices",
        &panels,
        3,
    )
}

impl Selection {
    fn experiments(&self, workloads: usize) -> Vec<Experiment> {
        let policies: Vec<PublishedPolicy> = PublishedPolicy::ALL
            .into_iter()
            .filter(|policy| self.policies.is_empty() || self.policies.contains(policy))
            .collect();
        let seeds: Vec<i64> = if self.seeds.is_empty() {
            SEEDS.collect()
        } else {
            self.seeds.clone()
        };
        let mut experiments = Vec::new();
        for workload in 0..workloads {
            for policy in &policies {
                experiments.extend(seeds.iter().map(|seed| Experiment {
                    workload,
                    policy: *policy,
                    seed: *seed,
                }));
            }
        }
        experiments
    }
}

/// Files of tasks, by name.
fn task_files(directory: &Path) -> Result<Vec<PathBuf>, ReproductionError> {
    let unreadable = |error| TraceError::Unreadable {
        file: directory.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_table = file.extension().is_some_and(|extension| extension == "csv");
        if name.starts_with(TASK_PREFIX) && is_table {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
