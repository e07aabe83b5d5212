//! Tables of curves, and their comparison with published ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::experiment::ExperimentResult;
use crate::measurement::{COLUMNS, METRICS};
use crate::policies::PublishedPolicy;

/// Key of an experiment in tables: workload, policy, seed.
pub type ExperimentKey = (String, String, i64);

/// Rows of three metrics, by experiment.
pub type PublishedTable = BTreeMap<ExperimentKey, [Vec<Option<f64>>; 3]>;

/// Table in the published format: `workload,policy,seed,metric,0,…,130`.
pub fn csv<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str, i64, &'r ExperimentResult)>) -> String {
    let mut text = "workload,policy,seed,metric".to_owned();
    for column in 0..COLUMNS {
        // Writing to a string cannot fail.
        let _ = write!(text, ",{column}");
    }
    text.push('\n');
    for (workload, policy, seed, result) in rows {
        for (metric, values) in METRICS.iter().zip(result.curves.all()) {
            let _ = write!(text, "{workload},{policy},{seed},{metric}");
            for value in values {
                text.push(',');
                if let Some(value) = value {
                    let _ = write!(text, "{value:?}");
                }
            }
            text.push('\n');
        }
    }
    text
}

/// Parses such a table.
///
/// # Errors
/// A line that is not of this format, with its number.
pub fn parse_csv(text: &str) -> Result<PublishedTable, String> {
    let mut table = PublishedTable::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .skip(1)
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let at = number + 1;
        let fields: Vec<&str> = line.trim().split(',').collect();
        let [workload, policy, seed, metric, values @ ..] = fields.as_slice() else {
            return Err(format!("line {at} has fewer than 5 fields"));
        };
        let seed: i64 = seed.parse().map_err(|_| format!("line {at}: `{seed}` is no seed"))?;
        let metric = METRICS.iter().position(|own| own == metric);
        let metric = metric.ok_or_else(|| format!("line {at}: the metric is none of {}", METRICS.join(", ")))?;
        let value = |text: &&str| match *text {
            "" => Ok(None),
            text => text
                .parse::<f64>()
                .map(Some)
                .map_err(|_| format!("line {at}: `{text}` is no number")),
        };
        let values = values.iter().map(value).collect::<Result<Vec<_>, String>>()?;
        if values.len() != COLUMNS {
            return Err(format!("line {at} has {} values, not {COLUMNS}", values.len()));
        }
        let rows = table
            .entry(((*workload).to_owned(), (*policy).to_owned(), seed))
            .or_default();
        if let Some(row) = rows.get_mut(metric) {
            *row = values;
        }
    }
    Ok(table)
}

/// Comparison of experiments with published ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableComparison {
    /// Number of deterministic experiments that could be compared.
    pub experiments: usize,
    /// Number of their values.
    pub values: usize,
    /// Number of values that are equal as binary numbers.
    pub equal: usize,
    /// First difference: experiment, metric, column, own and published figure.
    pub first_difference: Option<String>,
    /// Means of the random policy over seeds.
    pub random: Vec<RandomMean>,
}

/// Mean of one figure of the random policy over seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomMean {
    /// Name of the workload, such as `default` or `gpuspec33`.
    pub workload: String,
    /// Name of the metric.
    pub metric: &'static str,
    /// Column of the curves: arrived work in percent of the devices, such as 90.
    pub column: usize,
    /// Number of seeds.
    pub seeds: usize,
    /// Mean of the experiments.
    pub own: f64,
    /// Mean of the published ones.
    pub published: f64,
}

/// Columns in which means of the random policy are compared.
const RANDOM_COLUMNS: [usize; 2] = [100, 130];

impl TableComparison {
    /// Compares those experiments that are published.
    pub fn of<'r>(
        own: impl IntoIterator<Item = (&'r str, PublishedPolicy, i64, &'r ExperimentResult)>,
        published: &PublishedTable,
    ) -> Self {
        let mut comparison = Self::default();
        let mut sums: BTreeMap<(String, usize, usize), (usize, f64, f64)> = BTreeMap::new();
        for (workload, policy, seed, result) in own {
            let key = (workload.to_owned(), policy.name().to_owned(), seed);
            let Some(rows) = published.get(&key) else { continue };
            if policy == PublishedPolicy::Random {
                for (metric, (own, row)) in result.curves.all().into_iter().zip(rows).enumerate() {
                    for column in RANDOM_COLUMNS {
                        let value = |row: &[Option<f64>]| row.get(column).copied().flatten().unwrap_or(f64::NAN);
                        let sum = sums.entry((workload.to_owned(), metric, column)).or_default();
                        *sum = (sum.0 + 1, sum.1 + value(own), sum.2 + value(row));
                    }
                }
            } else {
                comparison.add(&key, result, rows);
            }
        }
        let mean = |((workload, metric, column), (seeds, own, published)): (_, (usize, f64, f64))| RandomMean {
            workload,
            metric: METRICS.get(metric).copied().unwrap_or(""),
            column,
            seeds,
            own: own / seeds as f64,
            published: published / seeds as f64,
        };
        comparison.random = sums.into_iter().map(mean).collect();
        comparison
    }

    fn add(&mut self, key: &ExperimentKey, result: &ExperimentResult, rows: &[Vec<Option<f64>>; 3]) {
        self.experiments += 1;
        for ((metric, own), row) in METRICS.iter().zip(result.curves.all()).zip(rows) {
            for (column, (own, published)) in own.iter().zip(row).enumerate() {
                self.values += 1;
                if own.map(f64::to_bits) == published.map(f64::to_bits) {
                    self.equal += 1;
                } else if self.first_difference.is_none() {
                    let (workload, policy, seed) = key;
                    self.first_difference = Some(format!(
                        "{workload} {policy} {seed} {metric}, column {column}: {own:?}, published {published:?}"
                    ));
                }
            }
        }
    }

    /// Largest distance of a mean of the random policy from the published one.
    pub fn largest_random_distance(&self) -> Option<f64> {
        let distances = self.random.iter().map(|mean| (mean.own - mean.published).abs());
        distances.max_by(f64::total_cmp)
    }
}
