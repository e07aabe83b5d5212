//! Hierarchical queues whose jobs each hold one task and wait for another.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;

use pumice::engine::derived::{DerivedSet, Movement, TaskMove};
use pumice::engine::model::{
    Amounts, JobRecord, NodeRecord, QueueRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord,
    TaskStatus, Texts, View,
};
use pumice::engine::policy::{CompileOptions, Policy, compile};

/// A task that waits in every cluster of this kind.
pub(crate) const WAITING: &str = "ns/job-00001-0-1";

/// Order by the hierarchy of queues.
pub(crate) const HIERARCHY: &str = "
actions: allocate
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
";

const GIB: i64 = 1 << 30;
/// Jobs of a queue.
const JOBS: u32 = 10;

/// A policy, compiled.
pub(crate) fn policy(document: &str) -> Arc<Policy> {
    compile(document, &CompileOptions::default())
        .expect("a good policy")
        .policy
}

/// What the queues of a cluster are like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// Their paths begin with this.
    pub(crate) above: &'static str,
    /// Weights of that part of the path.
    pub(crate) weights_above: &'static str,
    /// Milli-cores that nobody holds.
    pub(crate) spare: i64,
    /// Every other job wants gpus, too.
    pub(crate) mixed: bool,
}

/// Siblings with cpu to spare.
pub(crate) const FLAT: Kind = Kind {
    above: "root",
    weights_above: "1",
    spare: 1_000_000,
    mixed: false,
};

fn empty_view() -> (View, ResourceId, Arc<str>) {
    let mut index = Table::<Slot>::default();
    index.insert("node".into(), 0);
    let mut view = View::new(Arc::new(index), 1);
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 64).expect("room for a name");
    view.set_resources(Arc::new(resources));
    (view, gpu, "bench".into())
}

/// Puts one queue below those above it.
pub(crate) fn put_queue(view: &mut View, kind: Kind, queue: u32, source: &Arc<str>) {
    let weight = 1 + queue % 5;
    let texts: Texts = [
        (
            "volcano.sh/hierarchy".into(),
            format!("{}/q{queue:05}", kind.above).into(),
        ),
        (
            "volcano.sh/hierarchy-weights".into(),
            format!("{}/{weight}", kind.weights_above).into(),
        ),
    ]
    .into();
    let record = QueueRecord {
        name: format!("queue-{queue:05}").into(),
        annotations: texts,
        ..QueueRecord::default()
    };
    view.put_queue(record, source);
}

/// So many queues, ten jobs in each; every job holds one task and waits for another.
pub(crate) fn cluster(queues: u32, kind: Kind) -> View {
    let (mut view, gpu, source) = empty_view();
    let mut held = 0;
    for queue in 0..queues {
        put_queue(&mut view, kind, queue, &source);
        for job in 0..JOBS {
            let cpu = i64::from(500 + (queue * 7) % 1_000);
            let wants_gpu = !kind.mixed || job % 2 == 0;
            let name: Arc<str> = format!("ns/job-{queue:05}-{job}").into();
            let record = JobRecord {
                name: Arc::clone(&name),
                queue: format!("queue-{queue:05}").into(),
                ..JobRecord::default()
            };
            view.put_job(record, &source);
            for (number, status) in [TaskStatus::Running, TaskStatus::Pending].into_iter().enumerate() {
                let amounts = [
                    (ResourceId::CPU, cpu),
                    (ResourceId::MEMORY, GIB),
                    (ResourceId::PODS, 1),
                    (gpu, if wants_gpu { 100 } else { 0 }),
                ];
                let record = TaskRecord::from(TaskFields {
                    name: format!("{name}-{number}").into(),
                    job: Arc::clone(&name),
                    node: if number == 0 { "node" } else { "" }.into(),
                    status,
                    requests: amounts.into_iter().filter(|(_, amount)| *amount > 0).collect(),
                    ..TaskFields::default()
                });
                view.put_task(record, &source);
            }
            held += cpu;
        }
    }
    let tasks = i64::from(queues * JOBS * 4);
    // Of mixed queues the gpus run out, not the cpus.
    let (cpu, gpus) = if kind.mixed {
        (held + 1_000_000, i64::from(queues * JOBS / 2) * 100 + 100)
    } else {
        (held + kind.spare, tasks * 100)
    };
    let amounts = [
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, tasks * GIB),
        (ResourceId::PODS, tasks),
        (gpu, gpus),
    ];
    let node = NodeRecord {
        name: "node".into(),
        allocatable: Amounts::from_iter(amounts),
        ..NodeRecord::default()
    };
    assert!(view.put_node(Arc::new(node), &source));
    view
}

/// A task comes or goes.
pub(crate) fn event(view: &View, derived: &mut DerivedSet, task: &TaskRecord, comes: bool) {
    let moved = TaskMove {
        before: task,
        after: task,
        card: "",
    };
    let movement = if comes {
        Movement::Allocate(moved)
    } else {
        Movement::Deallocate(moved)
    };
    derived.follow(view, &movement).expect("it can be counted");
}
