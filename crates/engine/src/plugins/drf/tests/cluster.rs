//! Small clusters of nodes, queues, jobs and tasks.

use std::sync::Arc;

use super::super::{HIERARCHY, WEIGHTS};
use crate::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId, ResourceTable,
    SortedTable, TaskFields, TaskRecord, TaskStatus, TextMap,
};

/// Owner of the records.
pub(super) fn source_name() -> Arc<str> {
    "test".into()
}

/// Cluster state of these nodes.
pub(super) fn cluster_state(resources: ResourceTable, nodes: Vec<NodeRecord>) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for (slot, node) in (0..).zip(&nodes) {
        index.insert(Arc::clone(&node.name), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(Arc::new(resources));
    for node in nodes {
        assert!(cluster_state.put_node(Arc::new(node), &source_name()));
    }
    cluster_state
}

/// State of one node with these milli-cpus, bytes, pods and thousandths of a GPU.
pub(super) fn one_node_state(cpu: i64, memory: i64, pods: i64, gpu: i64) -> ClusterState {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, cpu, memory, pods, gpu),
        ..NodeRecord::default()
    };
    cluster_state(resources, vec![node])
}

/// Amounts without zeros.
fn amounts(resources: &mut ResourceTable, cpu: i64, memory: i64, pods: i64, gpu: i64) -> ResourceAmounts {
    let gpu_id = resources.intern("nvidia.com/gpu", 100).unwrap();
    let all = [
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, memory),
        (ResourceId::PODS, pods),
        (gpu_id, gpu),
    ];
    all.into_iter().filter(|(_, amount)| *amount != 0).collect()
}

/// Puts a queue; without a path it has no annotations.
pub(super) fn put_queue(
    cluster_state: &mut ClusterState,
    name: &str,
    path: &str,
    weights: &str,
    creation_time: Option<i64>,
) {
    let mut texts: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    if !path.is_empty() {
        texts.push((HIERARCHY.into(), path.into()));
        texts.push((WEIGHTS.into(), weights.into()));
    }
    let record = QueueRecord {
        name: name.into(),
        annotations: TextMap::from(texts),
        creation_time,
        ..QueueRecord::default()
    };
    cluster_state.put_queue(record, &source_name());
}

/// Puts a job.
pub(super) fn put_job(cluster_state: &mut ClusterState, name: &str, queue: &str) {
    let record = JobRecord {
        name: name.into(),
        queue: queue.into(),
        ..JobRecord::default()
    };
    cluster_state.put_job(record, &source_name());
}

/// Task of a job with these milli-cpus, bytes and thousandths of a GPU, and its pod.
pub(super) fn task(
    cluster_state: &ClusterState,
    name: &str,
    job: &str,
    status: TaskStatus,
    requests: (i64, i64, i64),
) -> TaskRecord {
    let (cpu, memory, gpu) = requests;
    let mut resources = ResourceTable::clone(cluster_state.resources());
    TaskRecord::from(TaskFields {
        name: name.into(),
        job: job.into(),
        status,
        node: if status == TaskStatus::Pending { "" } else { "n" }.into(),
        requests: amounts(&mut resources, cpu, memory, 1, gpu),
        ..TaskFields::default()
    })
}

/// Puts `count` such tasks, named `job-0`, …
pub(super) fn put_tasks_of_job(
    cluster_state: &mut ClusterState,
    job: &str,
    status: TaskStatus,
    requests: (i64, i64, i64),
    count: usize,
) {
    let before = cluster_state
        .tasks()
        .iter()
        .filter(|(_, task)| *task.record.job == *job)
        .count();
    for number in before..before + count {
        let task = task(cluster_state, &format!("{job}-{number:03}"), job, status, requests);
        cluster_state.put_task(task, &source_name());
    }
}
