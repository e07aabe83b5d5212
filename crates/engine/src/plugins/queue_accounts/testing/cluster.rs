//! Small clusters of nodes, queues, jobs and tasks.

use std::sync::Arc;

use crate::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, Reservation, ResourceAmounts, ResourceId,
    ResourceTable, SortedTable, TaskFields, TaskRecord, TaskStatus,
};

/// Resource besides cpu, memory and pods.
pub(crate) const GPU: ResourceId = ResourceId(3);
/// Resource that the reference leaves out of what is admitted.
pub(crate) const DISK: ResourceId = ResourceId(4);

/// Amounts of cpu, memory and GPUs; a negative one is missing.
pub(crate) fn amounts(cpu: i64, memory: i64, gpu: i64) -> ResourceAmounts {
    let all = [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory), (GPU, gpu)];
    all.into_iter().filter(|(_, amount)| *amount >= 0).collect()
}

/// Cluster state with these nodes, each with so much cpu, memory and GPUs.
pub(crate) fn cluster_state(nodes: &[(i64, i64, i64)]) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for slot in 0..16 {
        index.insert(Arc::from(format!("n{slot:02}")), slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    let mut names = ResourceTable::default();
    assert_eq!(names.intern("nvidia.com/gpu", usize::MAX).unwrap(), GPU);
    assert_eq!(names.intern("ephemeral-storage", usize::MAX).unwrap(), DISK);
    state.set_resources(Arc::new(names));
    for (slot, &(cpu, memory, gpu)) in nodes.iter().enumerate() {
        put_node(&mut state, slot, &amounts(cpu, memory, gpu), true);
    }
    state
}

/// Puts a node with 110 pods.
pub(crate) fn put_node(state: &mut ClusterState, number: usize, given: &ResourceAmounts, ready: bool) {
    let mut allocatable = given.clone();
    allocatable.set(ResourceId::PODS, 110);
    let node = NodeRecord {
        name: Arc::from(format!("n{number:02}")),
        allocatable,
        ready: Some(ready),
        ..NodeRecord::default()
    };
    state.put_node(Arc::new(node), &source());
}

fn source() -> Arc<str> {
    Arc::from("test")
}

/// Open queue with a weight.
pub(crate) fn queue(name: &str, weight: i32) -> QueueRecord {
    QueueRecord {
        name: Arc::from(name),
        weight: Some(weight),
        ..QueueRecord::default()
    }
}

pub(crate) fn put_queue(state: &mut ClusterState, queue: QueueRecord) {
    state.put_queue(queue, &source());
}

/// Job in a queue.
pub(crate) fn job(name: &str, queue: &str, min: Option<ResourceAmounts>, phase: JobPhase) -> JobRecord {
    JobRecord {
        name: Arc::from(name),
        queue: Arc::from(queue),
        min_resources: min,
        min_member: 1,
        phase,
        ..JobRecord::default()
    }
}

pub(crate) fn put_job(state: &mut ClusterState, job: JobRecord) {
    state.put_job(job, &source());
}

/// Task of a job, with one pod.
pub(crate) fn task(name: &str, job: &str, given: &ResourceAmounts, status: TaskStatus) -> TaskRecord {
    let mut requests = given.clone();
    requests.set(ResourceId::PODS, 1);
    TaskRecord::from(TaskFields {
        name: Arc::from(name),
        job: Arc::from(job),
        status,
        node: Arc::from(if status == TaskStatus::Pending { "" } else { "n00" }),
        requests,
        ..TaskFields::default()
    })
}

pub(crate) fn put_task(state: &mut ClusterState, task: TaskRecord) {
    state.put_task(task, &source());
}

/// Reservation of so much cpu for a job.
pub(crate) fn reservation(job: &str, queue: &str, cpu: i128) -> Arc<Reservation> {
    Arc::new(Reservation {
        job: Arc::from(job),
        queue: Arc::from(queue),
        amounts: vec![(Arc::from("cpu"), cpu), (Arc::from("memory"), 0)],
        ..Reservation::default()
    })
}
