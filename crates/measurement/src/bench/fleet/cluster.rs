//! Cluster of a fleet: nodes of one kind, and jobs whose tasks fill a part of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::placement_history::PlainAmounts;
use pumice_protocol::v1 as pb;

/// Kinds of tasks: thousandths of a core, and mebibytes.
const TASK_SIZES: [(u64, u64); 4] = [(500, 1_024), (1_000, 2_048), (1_500, 2_048), (1_000, 4_096)];
/// Bytes of a mebibyte.
const MEBIBYTE: u64 = 1 << 20;
/// Name of the queue of all jobs.
const QUEUE: &str = "fleet";

/// Size of a fleet's cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct FleetSize {
    pub(super) nodes: u32,
    pub(super) tasks: u32,
    /// Tasks of a job.
    pub(super) gang: u32,
    /// Part of the nodes that all tasks together fill, in percent.
    pub(super) fill: u32,
}

/// Job of a fleet: its tasks are equal.
#[derive(Debug, Clone)]
pub(super) struct FleetJob {
    pub(super) name: String,
    /// Names of its tasks.
    pub(super) tasks: Vec<String>,
    /// Number of its kind of tasks.
    size: usize,
}

/// Nodes and jobs that the schedulers fill.
#[derive(Debug, Clone)]
pub(super) struct FleetCluster {
    pub(super) nodes: Vec<String>,
    pub(super) jobs: Arc<Vec<FleetJob>>,
    /// Allocatable resources, equal on all nodes.
    pub(super) node_amounts: PlainAmounts,
}

impl FleetSize {
    /// Cluster of this size, always the same.
    pub(super) fn cluster(self) -> FleetCluster {
        let jobs: Vec<FleetJob> = (0..self.tasks.div_ceil(self.gang.max(1)))
            .map(|number| self.job(number))
            .collect();
        let total = |amount: fn((u64, u64)) -> u64| {
            let of_job = |job: &FleetJob| amount(task_size(job.size)) * job.tasks.len() as u64;
            jobs.iter().map(of_job).sum::<u64>()
        };
        let per_node = |total: u64| (total * 100).div_ceil(u64::from(self.fill.max(1)) * u64::from(self.nodes.max(1)));
        let (cores, memory) = (
            per_node(total(|(cores, _)| cores)),
            per_node(total(|(_, memory)| memory)),
        );
        // A node has room for its largest task at least.
        let (cores, memory) = (cores.max(1_500), memory.max(4_096));
        let pods = u64::from(self.tasks) * 2 / u64::from(self.nodes.max(1)) + 110;
        FleetCluster {
            nodes: (0..self.nodes)
                .map(|number| format!("fleet-node-{number:06}"))
                .collect(),
            jobs: Arc::new(jobs),
            node_amounts: BTreeMap::from([
                ("cpu".to_owned(), cores),
                ("memory".to_owned(), memory * MEBIBYTE),
                ("pods".to_owned(), pods),
            ]),
        }
    }

    fn job(self, number: u32) -> FleetJob {
        let name = format!("fleet/job-{number:07}");
        let first = number * self.gang.max(1);
        let tasks = self.gang.max(1).min(self.tasks - first);
        FleetJob {
            tasks: (0..tasks).map(|task| format!("{name}-{task}")).collect(),
            size: number as usize % TASK_SIZES.len(),
            name,
        }
    }
}

fn task_size(size: usize) -> (u64, u64) {
    TASK_SIZES.get(size).copied().unwrap_or((1_000, 1_024))
}

impl FleetJob {
    pub(super) fn task_amounts(&self) -> PlainAmounts {
        let (cores, memory) = task_size(self.size);
        BTreeMap::from([
            ("cpu".to_owned(), cores),
            ("memory".to_owned(), memory * MEBIBYTE),
            ("pods".to_owned(), 1),
        ])
    }

    fn records(&self) -> (pb::Job, impl Iterator<Item = pb::Task> + '_) {
        let job = pb::Job {
            name: self.name.clone(),
            queue: QUEUE.to_owned(),
            min_member: i32::try_from(self.tasks.len()).unwrap_or(i32::MAX),
            ..pb::Job::default()
        };
        let (cores, memory) = task_size(self.size);
        let requests = resource_list(&[("cpu", format!("{cores}m")), ("memory", format!("{memory}Mi"))]);
        let tasks = self.tasks.iter().map(move |name| pb::Task {
            name: name.clone(),
            job: self.name.clone(),
            requests: Some(requests.clone()),
            status: pb::TaskStatus::Pending.into(),
            ..pb::Task::default()
        });
        (job, tasks)
    }
}

fn resource_list(amounts: &[(&str, String)]) -> pb::ResourceList {
    let items = amounts
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), amount.clone()));
    pb::ResourceList { items: items.collect() }
}

impl FleetCluster {
    pub(super) fn records(&self) -> pb::Cluster {
        let amount = |name: &str| self.node_amounts.get(name).copied().unwrap_or(0);
        let allocatable = resource_list(&[
            ("cpu", format!("{}m", amount("cpu"))),
            ("memory", amount("memory").to_string()),
            ("pods", amount("pods").to_string()),
        ]);
        let nodes = self.nodes.iter().map(|name| pb::Node {
            name: name.clone(),
            allocatable: Some(allocatable.clone()),
            ..pb::Node::default()
        });
        let (mut jobs, mut tasks) = (Vec::with_capacity(self.jobs.len()), Vec::new());
        for own in self.jobs.iter() {
            let (job, of_job) = own.records();
            jobs.push(job);
            tasks.extend(of_job);
        }
        pb::Cluster {
            nodes: nodes.collect(),
            queues: vec![pb::Queue {
                name: QUEUE.to_owned(),
                ..pb::Queue::default()
            }],
            jobs,
            tasks,
            ..pb::Cluster::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_fill_the_part_that_was_asked_for() {
        let size = FleetSize {
            nodes: 100,
            tasks: 4_003,
            gang: 10,
            fill: 80,
        };
        let cluster = size.cluster();
        assert_eq!(cluster.jobs.iter().map(|job| job.tasks.len()).sum::<usize>(), 4_003);
        for resource in ["cpu", "memory"] {
            let of_job = |job: &FleetJob| job.task_amounts()[resource] * job.tasks.len() as u64;
            let taken: u64 = cluster.jobs.iter().map(of_job).sum();
            let fill = taken as f64 / (cluster.node_amounts[resource] * 100) as f64;
            assert!((0.79..=0.801).contains(&fill), "{resource}: {fill}");
        }
        let records = cluster.records();
        assert_eq!(
            (records.nodes.len(), records.jobs.len(), records.tasks.len()),
            (100, 401, 4_003)
        );
        assert_eq!(records.jobs.last().unwrap().min_member, 3);
    }
}
