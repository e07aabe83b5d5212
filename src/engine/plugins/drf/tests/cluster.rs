//! Small clusters of nodes, queues, jobs and tasks.

use std::sync::Arc;

use super::super::{HIERARCHY, WEIGHTS};
use crate::engine::model::{
    Amounts, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord,
    TaskStatus, Texts, View,
};

/// Who owns the records.
pub(super) fn source() -> Arc<str> {
    "test".into()
}

/// A View of these nodes.
pub(super) fn view(resources: ResourceTable, nodes: Vec<NodeRecord>) -> View {
    let mut index: Table<Slot> = Table::default();
    for (slot, node) in (0..).zip(&nodes) {
        index.insert(Arc::clone(&node.name), slot);
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    for node in nodes {
        assert!(view.put_node(Arc::new(node), &source()));
    }
    view
}

/// One node with so many milli-cpus, bytes, pods, and thousandths of a GPU.
pub(super) fn one_node(cpu: i64, memory: i64, pods: i64, gpu: i64) -> View {
    let mut resources = ResourceTable::default();
    let node = NodeRecord {
        name: "n".into(),
        allocatable: amounts(&mut resources, cpu, memory, pods, gpu),
        ..NodeRecord::default()
    };
    view(resources, vec![node])
}

/// Amounts; zeros are left out.
fn amounts(resources: &mut ResourceTable, cpu: i64, memory: i64, pods: i64, gpu: i64) -> Amounts {
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
pub(super) fn put_queue(view: &mut View, name: &str, path: &str, weights: &str, creation_time: Option<i64>) {
    let mut texts: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    if !path.is_empty() {
        texts.push((HIERARCHY.into(), path.into()));
        texts.push((WEIGHTS.into(), weights.into()));
    }
    let record = QueueRecord {
        name: name.into(),
        annotations: Texts::from(texts),
        creation_time,
        ..QueueRecord::default()
    };
    view.put_queue(record, &source());
}

/// Puts a job.
pub(super) fn put_job(view: &mut View, name: &str, queue: &str) {
    let record = JobRecord {
        name: name.into(),
        queue: queue.into(),
        ..JobRecord::default()
    };
    view.put_job(record, &source());
}

/// A task of a job with these milli-cpus, bytes and thousandths of a GPU; its pod is counted.
pub(super) fn task(view: &View, name: &str, job: &str, status: TaskStatus, requests: (i64, i64, i64)) -> TaskRecord {
    let (cpu, memory, gpu) = requests;
    let mut resources = ResourceTable::clone(view.resources());
    TaskRecord::from(TaskFields {
        name: name.into(),
        job: job.into(),
        status,
        node: if status == TaskStatus::Pending { "" } else { "n" }.into(),
        requests: amounts(&mut resources, cpu, memory, 1, gpu),
        ..TaskFields::default()
    })
}

/// Puts so many of them, named `job-0`, …
pub(super) fn put_tasks(view: &mut View, job: &str, status: TaskStatus, requests: (i64, i64, i64), count: usize) {
    let before = view.tasks().iter().filter(|(_, task)| *task.record.job == *job).count();
    for number in before..before + count {
        let task = task(view, &format!("{job}-{number:03}"), job, status, requests);
        view.put_task(task, &source());
    }
}
