//! Bounds of repeated workloads beside what their experiments allocated.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::bound::{AllocationBound, workload_bound};
use crate::experiment::in_parallel;
use crate::policies::{LabPolicyError, PublishedPolicy};
use crate::reproduction::Reproduction;

/// Bound of a workload of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadBound {
    /// Name of the workload.
    pub workload: String,
    /// Start value of the order of tasks, such as 42.
    pub seed: i64,
    /// Number of devices of the cluster.
    pub devices: usize,
    /// Upper bound of the allocation for any placement.
    pub bound: AllocationBound,
    /// Thousandths that each policy's experiment allocated in the end.
    pub outcomes: BTreeMap<PublishedPolicy, i64>,
}

impl WorkloadBound {
    /// Bounds of all workloads and seeds of a reproduction.
    ///
    /// # Errors
    /// The solver failed.
    pub fn of(reproduction: &Reproduction, threads: usize) -> Result<Vec<Self>, LabPolicyError> {
        let mut outcomes: BTreeMap<(&str, i64), BTreeMap<PublishedPolicy, i64>> = BTreeMap::new();
        for (workload, policy, seed, result) in reproduction.rows() {
            let own = outcomes.entry((workload, seed)).or_default();
            own.insert(policy, result.last.used);
        }
        let workloads: BTreeMap<&str, _> = reproduction
            .workloads()
            .iter()
            .map(|workload| (workload.name.as_str(), workload))
            .collect();
        let items: Vec<_> = outcomes.into_iter().collect();
        in_parallel(&items, threads, &|_| {}, |((name, seed), outcomes)| {
            let workload = workloads.get(name).ok_or_else(LabPolicyError::unknown_workload)?;
            let bound = workload_bound(&workload.trace.seeded(*seed));
            Ok(Self {
                workload: (*name).to_owned(),
                seed: *seed,
                devices: workload.trace.devices(),
                bound: bound.map_err(|error| LabPolicyError::unsolved(&error))?,
                outcomes: outcomes.clone(),
            })
        })
    }

    /// Percent of the devices.
    fn percent(&self, milli: i64) -> f64 {
        milli as f64 / self.devices as f64 / 10.0
    }

    /// Thousandths between the bound and the best outcome; negative: the bound is wrong.
    pub fn room(&self) -> i64 {
        self.bound.milli - self.outcomes.values().max().copied().unwrap_or(0)
    }
}

/// Table for people: means over the seeds of each workload.
pub fn bounds_text(bounds: &[WorkloadBound]) -> String {
    let mut text = format!(
        "{:<32} {:>9} {:>9} {:<17} {:>11}\n",
        "WORKLOAD", "AT MOST", "BEST", "BY", "LEAST ROOM"
    );
    let mut by_workload: BTreeMap<&str, Vec<&WorkloadBound>> = BTreeMap::new();
    for own in bounds {
        by_workload.entry(&own.workload).or_default().push(own);
    }
    for (workload, seeds) in by_workload {
        let count = seeds.len() as f64;
        let most = seeds.iter().map(|own| own.percent(own.bound.milli)).sum::<f64>() / count;
        let mut means: BTreeMap<PublishedPolicy, f64> = BTreeMap::new();
        for own in &seeds {
            for (policy, used) in &own.outcomes {
                *means.entry(*policy).or_default() += own.percent(*used) / count;
            }
        }
        let best = means.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (policy, mean) = best.map_or(("", 0.0), |(policy, mean)| (policy.name(), mean));
        let rooms = seeds.iter().map(|own| own.percent(own.room()));
        let least = rooms.fold(f64::INFINITY, f64::min);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{workload:<32} {most:>9.2} {mean:>9.2} {policy:<17} {least:>11.2}"
        );
    }
    text
}
