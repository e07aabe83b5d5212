//! Cost of a whole scheduling cycle in the engine, on one thread: enqueue, allocate and backfill under the configuration of
//! Volcano's chart, over 1,000 nodes and 10,000 waiting tasks.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pumice_engine::actions::{CycleAction, run_cycle_with};
use pumice_engine::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId, SortedTable,
    TaskFields, TaskRecord, TaskStatus,
};
use pumice_engine::policy::{CompileOptions, compile};

const NODES: u32 = 1_000;
const JOBS: i64 = 100;
const TASKS_PER_JOB: i64 = 100;
const QUEUES: i64 = 10;
const GIB: i64 = 1 << 30;
const POLICY: &str = "
actions: enqueue, allocate, backfill
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
";

fn amounts(cpu: i64, memory: i64, pods: i64) -> ResourceAmounts {
    ResourceAmounts::from_iter([
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, memory),
        (ResourceId::PODS, pods),
    ])
}

/// Cluster whose waiting jobs need `least` tasks to start. Every job has a size of its own.
fn cluster(least: i64) -> ClusterState {
    let source = Arc::from("bench");
    let mut index = SortedTable::<NodeSlot>::default();
    for slot in 0..NODES {
        index.insert(format!("node-{slot:04}").into(), slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for slot in 0..NODES {
        let node = NodeRecord {
            name: format!("node-{slot:04}").into(),
            allocatable: amounts(64_000, 256 * GIB, 110),
            ..NodeRecord::default()
        };
        state.put_node(Arc::new(node), &source);
    }
    state.refresh_ranks();
    for queue in 0..QUEUES {
        let queue = QueueRecord {
            name: format!("queue-{queue}").into(),
            ..QueueRecord::default()
        };
        state.put_queue(queue, &source);
    }
    for number in 0..JOBS {
        let name: Arc<str> = format!("ns/job-{number:03}").into();
        let job = JobRecord {
            name: Arc::clone(&name),
            queue: format!("queue-{}", number % QUEUES).into(),
            min_member: i32::try_from(least).unwrap_or(i32::MAX),
            phase: JobPhase::Pending,
            ..JobRecord::default()
        };
        state.put_job(job, &source);
        for task in 0..TASKS_PER_JOB {
            let task = TaskRecord::from(TaskFields {
                name: format!("{name}-{task:03}").into(),
                job: Arc::clone(&name),
                priority: 1,
                requests: amounts(1_000 + 10 * number, (2 + number % 4) * GIB, 1),
                ..TaskFields::default()
            });
            state.put_task(task, &source);
        }
    }
    state
}

fn cycle(criterion: &mut Criterion) {
    let policy = compile(POLICY, &CompileOptions::default())
        .expect("a good policy")
        .policy;
    let actions = [CycleAction::Enqueue, CycleAction::Allocate, CycleAction::Backfill];
    let mut group = criterion.benchmark_group("cycle_1000x10000");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    for (name, least) in [("gangs", TASKS_PER_JOB), ("single tasks", 1)] {
        let state = cluster(least);
        let states = policy.compute_plugin_states(&state);
        let run = || run_cycle_with(state.clone(), states.clone(), &policy, &actions, None).expect("a cycle");
        let ended = run();
        let bound = ended.cycle.cluster_state().tasks().iter();
        let bound = bound.filter(|(_, task)| task.record.status == TaskStatus::Binding);
        assert_eq!(bound.count(), 10_000, "every task is bound");
        group.bench_function(name, |bench| bench.iter(run));
    }
    group.finish();
}

criterion_group!(benches, cycle);
criterion_main!(benches);
