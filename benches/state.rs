//! What it costs to take changes in and to publish them.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice::engine::model::{
    Amounts, NodeRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord, TaskStatus, View,
};

const TASKS_PER_NODE: usize = 10;

fn node(number: usize, cpu: i64, gpu: ResourceId) -> NodeRecord {
    let amounts = [
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, 256 << 30),
        (ResourceId::PODS, 110),
        (gpu, 8_000),
    ];
    NodeRecord {
        name: format!("node-{number:06}").into(),
        allocatable: amounts.into_iter().collect(),
        ..NodeRecord::default()
    }
}

fn task(number: usize, nodes: usize, gpu: ResourceId) -> TaskRecord {
    let requests = [
        (ResourceId::CPU, 500),
        (ResourceId::MEMORY, 1 << 30),
        (ResourceId::PODS, 1),
        (gpu, 1_000),
    ];
    TaskRecord::from(TaskFields {
        name: format!("team/task-{number:07}").into(),
        job: format!("team/job-{:06}", number / 8).into(),
        node: format!("node-{:06}", number % nodes).into(),
        status: TaskStatus::Running,
        requests: requests.into_iter().collect::<Amounts>(),
        ..TaskFields::default()
    })
}

/// An empty View that knows the names of `nodes` nodes, and a GPU.
fn empty(nodes: usize) -> (View, ResourceId) {
    let mut index = Table::default();
    for number in 0..nodes {
        index.insert(
            node(number, 0, ResourceId::CPU).name,
            Slot::try_from(number).unwrap_or(Slot::MAX),
        );
    }
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 64).unwrap_or(ResourceId::CPU);
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(resources));
    (view, gpu)
}

fn load(nodes: usize) -> (View, ResourceId) {
    let (mut view, gpu) = empty(nodes);
    let source: Arc<str> = "bench".into();
    for number in 0..nodes {
        view.put_node(Arc::new(node(number, 64_000, gpu)), &source);
    }
    for number in 0..nodes * TASKS_PER_NODE {
        view.put_task(task(number, nodes, gpu), &source);
    }
    view.refresh_ranks();
    (view, gpu)
}

/// One changed node or task in a published View: the copy that readers hold stays as it was.
fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish_one_of");
    let source: Arc<str> = "bench".into();
    for nodes in [1_000, 10_000, 100_000] {
        let (view, gpu) = load(nodes);
        let mut cpu = 0;
        group.bench_function(BenchmarkId::new("node", nodes), |bencher| {
            let (mut next, mut published) = (view.clone(), view.clone());
            bencher.iter(|| {
                cpu += 1;
                next.put_node(Arc::new(node(nodes / 2, cpu, gpu)), &source);
                std::mem::replace(&mut published, black_box(next.clone()))
            });
        });
        let moved = [
            task(7, nodes, gpu),
            TaskRecord {
                node: "node-000003".into(),
                ..task(7, nodes, gpu)
            },
        ];
        group.bench_function(BenchmarkId::new("task", nodes), |bencher| {
            let (mut next, mut published) = (view.clone(), view.clone());
            let mut turn = moved.iter().cycle();
            bencher.iter(|| {
                next.put_task(turn.next().cloned().unwrap_or_default(), &source);
                std::mem::replace(&mut published, black_box(next.clone()))
            });
        });
    }
    group.finish();
}

/// A whole cluster with ten tasks per node.
fn take_in(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("take_in");
    group.sample_size(10);
    for nodes in [1_000, 10_000] {
        group.throughput(Throughput::Elements((nodes * (TASKS_PER_NODE + 1)) as u64));
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter_with_large_drop(|| load(nodes));
        });
    }
    group.finish();
}

criterion_group!(benches, publish, take_in);
criterion_main!(benches);
