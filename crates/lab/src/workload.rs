//! Workload of an experiment: nodes in their order, and tasks in the order of their arrival.

use std::sync::Arc;

use crate::go_random::GoRandom;
use crate::trace::{LabNode, LabTask};

/// Part of the cluster's devices that arriving tasks ask for together.
const OFFERED: f64 = 1.3;
/// Numbers that the reference draws between the tasks and the nodes.
const DRAWN_BETWEEN: usize = 10;

/// Trace of one workload, sorted by name.
#[derive(Clone, Debug)]
pub struct WorkloadTrace {
    nodes: Vec<LabNode>,
    tasks: Vec<LabTask>,
}

/// Arrivals of a workload in the order of one seed.
#[derive(Clone, Debug)]
pub struct SeededWorkload<'t> {
    /// Nodes in their order: of equal scores the first one wins.
    pub nodes: Vec<&'t LabNode>,
    /// Position of each node in the prefixed names, which is its place in `nodes`.
    pub arrivals: Vec<Arrival<'t>>,
    /// Generator after everything is drawn.
    pub random: GoRandom,
}

/// Task that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'t> {
    /// Task that arrives.
    pub task: &'t LabTask,
    /// Number of the task among the tasks that were added to reach the load. `None`: a task of the trace.
    pub added: Option<usize>,
}

impl Arrival<'_> {
    /// Name of the task.
    pub fn name(&self) -> String {
        match self.added {
            None => self.task.name.to_string(),
            Some(number) => format!("{}-tuned-{number}", self.task.name),
        }
    }
}

impl WorkloadTrace {
    /// Trace with these nodes and tasks.
    pub fn new(mut nodes: Vec<LabNode>, mut tasks: Vec<LabTask>) -> Self {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        Self { nodes, tasks }
    }

    /// Nodes by name.
    pub fn nodes(&self) -> &[LabNode] {
        &self.nodes
    }

    /// Tasks by name.
    pub fn tasks(&self) -> &[LabTask] {
        &self.tasks
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.nodes.iter().map(|node| node.devices).sum()
    }

    /// Workload of a seed.
    pub fn seeded(&self, seed: i64) -> SeededWorkload<'_> {
        let mut random = GoRandom::new(seed);
        random.int63();
        let mut tasks: Vec<&LabTask> = self.tasks.iter().collect();
        random.shuffle(&mut tasks);
        let mut arrivals: Vec<Arrival<'_>> = tasks.into_iter().map(|task| Arrival { task, added: None }).collect();
        self.tune(&mut random, &mut arrivals);
        for _ in 0..DRAWN_BETWEEN {
            random.float64();
        }
        let mut ranked: Vec<(usize, &LabNode)> = random.perm(self.nodes.len()).into_iter().zip(&self.nodes).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        SeededWorkload {
            nodes: ranked.into_iter().map(|(_, node)| node).collect(),
            arrivals,
            random,
        }
    }

    /// Removes tasks or adds copies until the tasks request [`OFFERED`] of the devices. As in the reference, the last
    /// comparison assumes one device for the task, whatever its request.
    fn tune<'t>(&'t self, random: &mut GoRandom, arrivals: &mut Vec<Arrival<'t>>) {
        let limit = OFFERED * (self.devices() * 1000) as f64;
        let mut asked: i64 = arrivals.iter().map(|arrival| arrival.task.task.total()).sum();
        if asked as f64 > limit {
            while asked as f64 > limit && !arrivals.is_empty() {
                let removed = arrivals.remove(random.intn(arrivals.len()));
                asked -= removed.task.task.total();
            }
        } else if (asked as f64) < limit && arrivals.iter().any(|arrival| arrival.task.task.count > 0) {
            let mut number = 0;
            while let Some(task) = self.tasks.get(random.intn(self.tasks.len())) {
                if (asked + i64::from(task.task.milli)) as f64 > limit {
                    break;
                }
                asked += task.task.total();
                arrivals.push(Arrival {
                    task,
                    added: Some(number),
                });
                number += 1;
            }
        }
    }
}

impl SeededWorkload<'_> {
    /// Names of the nodes, in their order.
    pub fn node_names(&self) -> impl Iterator<Item = Arc<str>> + '_ {
        let prefixed = |(rank, node): (usize, &&LabNode)| Arc::from(format!("{rank:04}-{}", node.name));
        self.nodes.iter().enumerate().map(prefixed)
    }
}
