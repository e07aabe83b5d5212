//! Experiments: a workload of one seed offered to a cluster under one policy.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use pumice_engine::devices::fragmentation::{Fragmentation, TypicalTask};

use crate::allocation::LabCluster;
use crate::measurement::{Curves, Sample};
use crate::policies::{LabPolicy, LabPolicyError, PublishedPolicy};
use crate::trace::{LabNode, TraceError, file_stem, read_tasks};
use crate::typical::TypicalTasks;
use crate::workload::WorkloadTrace;

/// Workload with its typical tasks.
#[derive(Clone, Debug)]
pub struct LabWorkload {
    /// Name in tables.
    pub name: String,
    /// Nodes and tasks.
    pub trace: WorkloadTrace,
    /// Typical tasks.
    pub typical: TypicalTasks,
    measure: Fragmentation,
}

/// One experiment among many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Position of the workload.
    pub workload: usize,
    /// Policy of the published tables, such as `06-FGD`.
    pub policy: PublishedPolicy,
    /// Seed of the order of arrivals and of random scores, such as 42.
    pub seed: i64,
}

/// Result of an experiment: curves, final state and numbers of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentResult {
    /// Curves by arrived work.
    pub curves: Curves,
    /// State after the last arrival.
    pub last: Sample,
    /// Number of tasks that arrived.
    pub arrived: usize,
    /// Number of tasks that found no node.
    pub unplaced: usize,
}

impl LabWorkload {
    /// Workload of a trace.
    pub fn new(name: &str, trace: WorkloadTrace) -> Self {
        let typical = TypicalTasks::of(trace.tasks());
        Self {
            name: name.to_owned(),
            measure: Fragmentation::new(&frequencies(&typical)),
            typical,
            trace,
        }
    }

    /// Workload of a file of tasks on nodes, with the name of the file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is malformed.
    pub fn read(nodes: &[LabNode], file: &Path) -> Result<Self, TraceError> {
        let trace = WorkloadTrace::new(nodes.to_vec(), read_tasks(file)?);
        Ok(Self::new(&file_stem(file), trace))
    }

    /// Fragmentation as the experiments measure it.
    pub fn measure(&self) -> &Fragmentation {
        &self.measure
    }

    /// Runs a policy on the workload of a seed.
    pub fn run(&self, policy: &LabPolicy, seed: i64) -> ExperimentResult {
        let workload = self.trace.seeded(seed);
        let mut cluster = LabCluster::new(&workload.nodes, policy, &self.measure);
        let mut samples = Vec::with_capacity(workload.arrivals.len());
        let mut sample = Sample {
            fragments: cluster.fragments(),
            ..Sample::default()
        };
        let mut unplaced = 0;
        for arrival in &workload.arrivals {
            let class = cluster.class_of(&arrival.task.task);
            sample.arrived += arrival.task.task.total();
            match cluster.place(arrival.task, class) {
                Some(_) => sample.fragments = cluster.fragments(),
                None => unplaced += 1,
            }
            sample.used = cluster.used();
            samples.push(sample);
        }
        ExperimentResult {
            curves: Curves::of(&samples, self.trace.devices()),
            last: sample,
            arrived: samples.len(),
            unplaced,
        }
    }
}

/// Typical tasks with their frequencies, rounded twice where rare classes are left out.
pub fn frequencies(typical: &TypicalTasks) -> Vec<TypicalTask> {
    let listed: usize = typical.classes.iter().map(|class| class.tasks).sum();
    let total = typical.total as f64;
    let of = |class: &crate::typical::TypicalClass| {
        let mut frequency = class.tasks as f64 / total;
        if listed < typical.total {
            frequency /= listed as f64 / total;
        }
        TypicalTask {
            task: class.task.clone(),
            frequency,
        }
    };
    typical.classes.iter().map(of).collect()
}

/// Runs experiments on `threads` threads. `done` is called after each experiment with the number of finished
/// experiments.
///
/// # Errors
/// A policy does not compile.
pub fn run_all(
    workloads: &[LabWorkload],
    experiments: &[Experiment],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<ExperimentResult>, LabPolicyError> {
    in_parallel(experiments, threads, done, |experiment| {
        let workload = workloads
            .get(experiment.workload)
            .ok_or_else(LabPolicyError::unknown_workload)?;
        let document = experiment.policy.document(&workload.typical, experiment.seed);
        Ok(workload.run(&LabPolicy::compile(&document)?, experiment.seed))
    })
}

/// Does the same with each item on so many threads. Results are in the order of the items.
pub(crate) fn in_parallel<I: Sync, R: Send>(
    items: &[I],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
    each: impl Fn(&I) -> Result<R, LabPolicyError> + Sync,
) -> Result<Vec<R>, LabPolicyError> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || -> Result<Vec<(usize, R)>, LabPolicyError> {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return Ok(own);
            };
            own.push((number, each(item)?));
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| {
            let part = worker.join().map_err(|_| LabPolicyError::thread_failed());
            part.and_then(|part| part)
        });
        joined.collect::<Result<Vec<_>, LabPolicyError>>()
    })?;
    let mut results: Vec<(usize, R)> = parts.into_iter().flatten().collect();
    results.sort_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
