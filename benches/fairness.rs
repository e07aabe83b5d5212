//! Cost of fair order: an event in a tree of queues, with and without a resource that it uses up; victims; and
//! Koordinator's two plugins.
#![expect(clippy::expect_used, reason = "a bench that cannot ask has nothing to measure")]

mod fixtures {
    pub(crate) mod fair_share;
}

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{
    self, FilterDetail, LastRounds, NodeQuery, QueryTask, ResourceFit, ScoreQuery, VictimGroup, VictimsQuery,
};
use pumice_engine::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable, SortedTable, TaskFields,
    TaskRecord, TaskStatus,
};
use pumice_engine::plugin::VictimKind;

use fixtures::fair_share::{FLAT, HIERARCHY, QueueShape, WAITING, cluster, event, policy, put_queue};

const KOORDINATOR: &str = "
actions: allocate
tiers:
- plugins:
  - name: NodeResourcesFitPlus
    arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}}}
  - {name: ScarceResourceAvoidance, arguments: {resources: [nvidia.com/gpu]}}
";

const GIB: i64 = 1 << 30;

/// Queues with so little cpu left that one more task uses the last of it.
const SHORT: QueueShape = QueueShape {
    free_millicores: 507,
    ..FLAT
};

/// Task that comes and goes in turn: one event each time.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#[expect(clippy::too_many_lines, reason = "one list of cases")]
fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one event");
    group
        .sample_size(30)
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(300));
    let grouped = QueueShape {
        path_prefix: "root/all",
        prefix_weights: "1/1",
        ..FLAT
    };
    let cases = [
        ("siblings", FLAT),
        ("siblings below a group", grouped),
        ("a resource flips", SHORT),
        (
            "a resource flips, below a group",
            QueueShape {
                free_millicores: 507,
                ..grouped
            },
        ),
        (
            "a resource flips, queues of two kinds of jobs",
            QueueShape { mixed: true, ..FLAT },
        ),
    ];
    for queues in [1_000, 10_000] {
        for (name, kind) in cases {
            let cluster_state = cluster(queues, kind);
            let mut derived = policy(HIERARCHY).compute_plugin_states(&cluster_state);
            let task = cluster_state
                .tasks()
                .get(WAITING)
                .expect("a waiting task")
                .record
                .clone();
            group.bench_function(BenchmarkId::new(name, queues), |bench| {
                bench.iter_custom(|times| {
                    let begin = Instant::now();
                    for time in 0..times {
                        event(&cluster_state, &mut derived, &task, time % 2 == 0);
                    }
                    let spent = begin.elapsed();
                    if times % 2 == 1 {
                        event(&cluster_state, &mut derived, &task, false);
                    }
                    spent
                });
            });
            // The event is the first change of a step, so shared parts have to be copied.
            group.bench_function(BenchmarkId::new(format!("{name}, first of a step"), queues), |bench| {
                bench.iter_batched(
                    || derived.clone(),
                    |mut step| {
                        event(&cluster_state, &mut step, &task, true);
                        step
                    },
                    criterion::BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

/// A thousand candidates of a thousand jobs in a hundred queues; half of them may be evicted.
fn victims(criterion: &mut Criterion) {
    let full = QueueShape {
        free_millicores: 0,
        ..FLAT
    };
    let mut cluster_state = cluster(100, full);
    let source: Arc<str> = "bench".into();
    put_queue(&mut cluster_state, FLAT, 100, &source);
    let job = JobRecord {
        name: "ns/new".into(),
        queue: "queue-00100".into(),
        ..JobRecord::default()
    };
    cluster_state.put_job(job, &source);
    let preemptor = TaskRecord::from(TaskFields {
        name: "ns/new-0".into(),
        job: "ns/new".into(),
        status: TaskStatus::Pending,
        requests: ResourceAmounts::from_iter([(ResourceId::CPU, 4_000)]),
        ..TaskFields::default()
    });
    cluster_state.put_task(preemptor.clone(), &source);
    let tasks = cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
    let group = VictimGroup {
        preemptor,
        node: "node".into(),
        candidates: tasks.filter(|task| task.status.is_allocated()).cloned().collect(),
        assumptions: Vec::new(),
    };
    let policy = policy(HIERARCHY);
    let cycle = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(&cluster_state),
    );
    let mut bench_group = criterion.benchmark_group("1000 candidates");
    bench_group.sample_size(10).measurement_time(Duration::from_secs(2));
    for (name, kind, cores, irreducible) in [
        ("preempt", VictimKind::Preempt, 4, false),
        ("reclaim", VictimKind::Reclaim, 4, false),
        ("preempt, irreducible, a few go", VictimKind::Preempt, 4, true),
        ("preempt, irreducible, hundreds go", VictimKind::Preempt, 200, true),
    ] {
        let mut group = group.clone();
        group.preemptor.requests = ResourceAmounts::from_iter([(ResourceId::CPU, cores * 1_000)]);
        let query = VictimsQuery {
            now: None,
            kind,
            groups: vec![Ok(group)],
            plugins: Vec::new(),
            irreducible,
            last_rounds: LastRounds::new(),
        };
        let first = decide::victims(&cycle, &policy, &query).expect("an answer").remove(0);
        let victims = first.expect("a verdict").victims.len();
        bench_group.bench_function(BenchmarkId::new(name, format!("{victims} victims")), |bench| {
            bench.iter(|| decide::victims(&cycle, &policy, &query).expect("an answer"));
        });
    }
    bench_group.finish();
}

/// Nodes with gpus, half of them in use. `odd`: amounts that floats cannot represent, so that columns of integers are
/// needed.
fn nodes(number: u32, odd: bool) -> ClusterState {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern("nvidia.com/gpu", 64).expect("room for a name");
    let mut index = SortedTable::<NodeSlot>::default();
    let names: Vec<Arc<str>> = (0..number).map(|slot| format!("node-{slot:06}").into()).collect();
    for (slot, name) in (0..).zip(&names) {
        index.insert(Arc::clone(name), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(Arc::new(resources));
    for (slot, name) in (0..).zip(&names) {
        assert!(cluster_state.put_node(Arc::new(node(name, gpu, slot, odd)), &Arc::from("bench")));
    }
    cluster_state.refresh_ranks();
    cluster_state
}

fn node(name: &Arc<str>, gpu: ResourceId, some: i64, odd: bool) -> NodeRecord {
    let used = |unit: i64| {
        [
            (ResourceId::CPU, 300 * (some % 97) + unit),
            (ResourceId::MEMORY, GIB * (some % 31)),
            (gpu, 1_000 * (some % 8)),
        ]
    };
    NodeRecord {
        name: Arc::clone(name),
        allocatable: ResourceAmounts::from_iter([
            (ResourceId::CPU, 64_000),
            (ResourceId::MEMORY, 256 * GIB),
            (gpu, 8_000),
        ]),
        unattributed_used: Some(ResourceAmounts::from_iter(used(0))),
        // This sum differs from the used amounts.
        unattributed_nonzero_used: odd.then(|| ResourceAmounts::from_iter(used(100))),
        ..NodeRecord::default()
    }
}

fn koordinator(criterion: &mut Criterion) {
    const NODES: u32 = 10_000;
    let policy = policy(KOORDINATOR);
    let mut group = criterion.benchmark_group("Koordinator, 10000 nodes");
    for (name, odd) in [("told by floats", false), ("integers beside", true)] {
        let mut cluster_state = nodes(NODES, odd);
        let gpu = cluster_state.resources().get("nvidia.com/gpu").expect("known");
        let task = Arc::new(TaskRecord::from(TaskFields {
            requests: ResourceAmounts::from_iter([
                (ResourceId::CPU, 4_000),
                (ResourceId::MEMORY, 16 * GIB),
                (gpu, 1_000),
            ]),
            ..TaskFields::default()
        }));
        let warnings = Vec::new();
        let query = ScoreQuery {
            node_query: NodeQuery {
                now: None,
                tasks: vec![Ok(QueryTask { task, warnings })],
                resources: Arc::clone(cluster_state.resources()),
                candidates: None,
                plugins: Vec::new(),
                resource_fit: ResourceFit::None,
                samples: 3,
                detail: FilterDetail::Counts,
            },
            with_filter: false,
            limit: None,
            with_parts: false,
            ahead: 0,
        };
        group.throughput(Throughput::Elements(NODES.into()));
        group.bench_function(format!("score by both plugins, {name}"), |bench| {
            bench.iter(|| decide::score(&cluster_state, &policy, &query).expect("scores"));
        });
        group.throughput(Throughput::Elements(1));
        let (source, mut some) = (Arc::from("bench"), 0);
        group.bench_function(format!("one changed node, {name}"), |bench| {
            bench.iter(|| {
                some += 1;
                // The earlier cluster state stays unchanged.
                let before = cluster_state.clone();
                assert!(cluster_state.put_node(Arc::new(node(&"node-005000".into(), gpu, some, odd)), &source));
                before
            });
        });
    }
    group.finish();
}

criterion_group!(fairness, events, victims, koordinator);
criterion_main!(fairness);
