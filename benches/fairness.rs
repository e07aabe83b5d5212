//! What an event costs in a tree of queues, and what an order of queues costs.
#![expect(
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a bench that cannot ask has nothing to measure"
)]

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pumice::engine::decide::{self, OrderQuestion};
use pumice::engine::derived::{DerivedSet, Movement, TaskMove};
use pumice::engine::model::{
    Amounts, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, TaskRecord, TaskStatus, Texts,
    View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

const POLICY: &str = "
actions: allocate
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
";

const GIB: i64 = 1 << 30;
const JOBS: u32 = 10;

fn policy() -> Arc<Policy> {
    compile(POLICY, &CompileOptions::default())
        .expect("a good policy")
        .policy
}

/// So many queues below the root, ten jobs in each; every job holds one task and waits for another. `spare`: milli-cores
/// that nobody holds.
fn cluster(queues: u32, spare: i64) -> View {
    let source: Arc<str> = "bench".into();
    let mut index = Table::<Slot>::default();
    index.insert("node".into(), 0);
    let mut view = View::new(Arc::new(index), 1);
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 64).expect("room for a name");
    view.set_resources(Arc::new(resources));
    let mut held = 0;
    for queue in 0..queues {
        let name: Arc<str> = format!("queue-{queue:05}").into();
        let weight = 1 + queue % 5;
        let texts: Texts = [
            ("volcano.sh/hierarchy".into(), format!("root/q{queue:05}").into()),
            ("volcano.sh/hierarchy-weights".into(), format!("1/{weight}").into()),
        ]
        .into();
        let record = QueueRecord {
            name: Arc::clone(&name),
            annotations: texts,
            ..QueueRecord::default()
        };
        view.put_queue(record, &source);
        for job in 0..JOBS {
            let job: Arc<str> = format!("ns/job-{queue:05}-{job}").into();
            let record = JobRecord {
                name: Arc::clone(&job),
                queue: Arc::clone(&name),
                ..JobRecord::default()
            };
            view.put_job(record, &source);
            let cpu = i64::from(500 + (queue * 7) % 1_000);
            for (number, status) in [TaskStatus::Running, TaskStatus::Pending].into_iter().enumerate() {
                let amounts = [
                    (ResourceId::CPU, cpu),
                    (ResourceId::MEMORY, GIB),
                    (ResourceId::PODS, 1),
                    (gpu, 100),
                ];
                let record = TaskRecord {
                    name: format!("{job}-{number}").into(),
                    job: Arc::clone(&job),
                    status,
                    requests: amounts.into_iter().collect(),
                    ..TaskRecord::default()
                };
                view.put_task(record, &source);
            }
            held += cpu;
        }
    }
    let tasks = i64::from(queues * JOBS * 4);
    let amounts = [
        (ResourceId::CPU, held + spare),
        (ResourceId::MEMORY, tasks * GIB),
        (ResourceId::PODS, tasks),
        (gpu, tasks * 100),
    ];
    let node = NodeRecord {
        name: "node".into(),
        allocatable: Amounts::from_iter(amounts),
        ..NodeRecord::default()
    };
    assert!(view.put_node(Arc::new(node), &source));
    view
}

/// A task comes and goes: two events.
fn there_and_back(view: &View, derived: &mut DerivedSet, task: &TaskRecord) {
    let moved = TaskMove {
        before: task,
        after: task,
        card: "",
    };
    derived.follow(view, &Movement::Allocate(moved)).expect("room to count");
    derived
        .follow(view, &Movement::Deallocate(moved))
        .expect("it was counted");
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("two_events");
    group
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(300));
    for queues in [1_000, 10_000] {
        for (name, spare) in [("plain", 1_000_000), ("resource_flips", 507)] {
            let view = cluster(queues, spare);
            let mut derived = policy().derive(&view);
            let task = view
                .tasks()
                .get("ns/job-00001-0-1")
                .expect("a waiting task")
                .record
                .clone();
            group.bench_function(BenchmarkId::new(name, queues), |bench| {
                bench.iter(|| there_and_back(&view, &mut derived, &task));
            });
        }
    }
    group.finish();
}

fn orders(criterion: &mut Criterion) {
    let view = cluster(1_000, 1_000_000);
    let policy = policy();
    let derived = policy.derive(&view);
    let question = OrderQuestion {
        queues: Some(Vec::new()),
        ..OrderQuestion::default()
    };
    criterion.bench_function("order/1000_queues", |bench| {
        bench.iter(|| decide::order(&view, &policy, &derived, &question).expect("an order"));
    });
}

criterion_group!(fairness, events, orders);
criterion_main!(fairness);
