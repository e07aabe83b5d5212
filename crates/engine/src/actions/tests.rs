//! Cycles on small clusters.

use std::sync::Arc;

use super::{CycleAction, CycleEvent, CycleReport, PREEMPTABLE, run_cycle};
use crate::model::{
    ClusterState, GangMember, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId,
    SortedTable, TaskFields, TaskRecord, TaskStatus, TextMap,
};
use crate::policy::{CompileOptions, compile};

/// Configuration of Volcano's chart, with victims of gangs.
const STOCK: &str = "
actions: enqueue, allocate, backfill, preempt, reclaim
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
pumice: {compatibility: corrected}
";

const WHOLE_CYCLE: [CycleAction; 3] = [CycleAction::Enqueue, CycleAction::Allocate, CycleAction::Backfill];

fn amounts(cpu: i64) -> ResourceAmounts {
    let all = [
        (ResourceId::CPU, cpu * 1000),
        (ResourceId::MEMORY, 1000 * cpu),
        (ResourceId::PODS, 1),
    ];
    all.into_iter().filter(|(_, amount)| *amount > 0).collect()
}

/// Cluster of nodes with so much cpu, and one queue.
fn cluster(nodes: &[i64]) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for slot in 0..16 {
        index.insert(Arc::from(format!("n{slot:02}")), slot);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for (slot, cpu) in nodes.iter().enumerate() {
        let mut allocatable = amounts(*cpu);
        allocatable.set(ResourceId::PODS, 110);
        let node = NodeRecord {
            name: Arc::from(format!("n{slot:02}")),
            allocatable,
            ..NodeRecord::default()
        };
        assert!(state.put_node(Arc::new(node), &Arc::from("test")));
    }
    state.refresh_ranks();
    put_queue(&mut state, "q");
    state
}

fn put_queue(state: &mut ClusterState, name: &str) {
    let queue = QueueRecord {
        name: Arc::from(name),
        ..QueueRecord::default()
    };
    state.put_queue(queue, &Arc::from("test"));
}

/// Puts a job with tasks of this cpu; a task with a node runs there.
fn put_job(
    state: &mut ClusterState,
    (name, queue): (&str, &str),
    (least, priority): (i32, i32),
    tasks: &[(i64, &str)],
) {
    let running = tasks.iter().any(|(_, node)| !node.is_empty());
    let job = JobRecord {
        name: Arc::from(name),
        queue: Arc::from(queue),
        min_member: least,
        priority,
        phase: if running { JobPhase::Running } else { JobPhase::Pending },
        ..JobRecord::default()
    };
    state.put_job(job, &Arc::from("test"));
    for (number, (cpu, node)) in tasks.iter().enumerate() {
        let status = if node.is_empty() {
            TaskStatus::Pending
        } else {
            TaskStatus::Running
        };
        let task = TaskRecord::from(TaskFields {
            name: Arc::from(format!("{name}-{number}")),
            job: Arc::from(name),
            node: Arc::from(*node),
            status,
            priority,
            requests: amounts(*cpu),
            ..TaskFields::default()
        });
        state.put_task(task, &Arc::from("test"));
    }
}

fn run(state: &ClusterState, actions: &[CycleAction]) -> CycleReport {
    run_under("corrected", state, actions)
}

fn run_under(compatibility: &str, state: &ClusterState, actions: &[CycleAction]) -> CycleReport {
    let document = STOCK.replace("corrected", compatibility);
    let policy = compile(&document, &CompileOptions::default()).unwrap().policy;
    run_cycle(state.clone(), &policy, actions, None).unwrap()
}

/// Status and node of a task after a cycle.
fn end(report: &CycleReport, task: &str) -> (TaskStatus, String) {
    let stored = report.cycle.cluster_state().tasks().get(task).unwrap();
    (stored.record.status, stored.record.node.to_string())
}

#[test]
fn a_gang_starts_as_a_whole_or_not_at_all() {
    let mut state = cluster(&[2, 2]);
    put_job(&mut state, ("ns/big", "q"), (5, 9), &[(1, ""); 5]);
    put_job(&mut state, ("ns/small", "q"), (2, 1), &[(1, ""); 3]);
    let report = run(&state, &WHOLE_CYCLE);
    for number in 0..5 {
        assert_eq!(
            end(&report, &format!("ns/big-{number}")),
            (TaskStatus::Pending, String::new())
        );
    }
    for number in 0..3 {
        assert_eq!(end(&report, &format!("ns/small-{number}")).0, TaskStatus::Binding);
    }
    let job = report.cycle.cluster_state().jobs().get("ns/small").unwrap();
    assert_eq!(job.record.phase, JobPhase::Inqueue);
    assert!(report.events.contains(&CycleEvent::Enqueued("ns/small".into())));
}

#[test]
fn without_enqueue_waiting_jobs_count_as_enqueued() {
    let mut state = cluster(&[2]);
    put_job(&mut state, ("ns/a", "q"), (1, 1), &[(1, "")]);
    let skipped = run(&state, &[CycleAction::Allocate, CycleAction::Enqueue]);
    assert_eq!(
        end(&skipped, "ns/a-0").0,
        TaskStatus::Pending,
        "enqueue comes too late for it"
    );
    let placed = run(&state, &[CycleAction::Allocate]);
    assert_eq!(end(&placed, "ns/a-0"), (TaskStatus::Binding, "n00".to_owned()));
}

#[test]
fn backfill_places_only_tasks_that_request_nothing() {
    let mut state = cluster(&[1]);
    put_job(&mut state, ("ns/full", "q"), (1, 1), &[(1, "n00")]);
    put_job(&mut state, ("ns/a", "q"), (1, 1), &[(0, ""), (1, "")]);
    let report = run(&state, &WHOLE_CYCLE);
    assert_eq!(end(&report, "ns/a-0"), (TaskStatus::Binding, "n00".to_owned()));
    assert_eq!(end(&report, "ns/a-1").0, TaskStatus::Pending);
}

#[test]
fn preempt_evicts_as_few_tasks_as_it_needs() {
    let mut state = cluster(&[4]);
    put_job(&mut state, ("ns/low", "q"), (1, 1), &[(1, "n00"); 4]);
    put_job(&mut state, ("ns/high", "q"), (1, 9), &[(2, "")]);
    let actions = [CycleAction::Enqueue, CycleAction::Preempt];
    let report = run(&state, &actions);
    assert_eq!(end(&report, "ns/high-0"), (TaskStatus::Pipelined, "n00".to_owned()));
    let evicted: Vec<&CycleEvent> = report
        .events
        .iter()
        .filter(|event| matches!(event, CycleEvent::Evicted { .. }))
        .collect();
    assert_eq!(evicted.len(), 2, "{evicted:?}");

    // Pods that say so are spared.
    for number in 0..4 {
        let name = format!("ns/low-{number}");
        let stored = state.tasks().get(&name).unwrap().record.clone();
        let mut spared = stored.clone();
        spared.annotations = TextMap::from(vec![(Arc::from(PREEMPTABLE), Arc::from("no"))]);
        state.put_task(spared, &Arc::from("test"));
    }
    let report = run(&state, &actions);
    assert_eq!(end(&report, "ns/high-0").0, TaskStatus::Pending);
}

#[test]
fn reclaim_evicts_only_from_queues_that_give_back() {
    let mut state = cluster(&[4]);
    put_queue(&mut state, "other");
    put_job(&mut state, ("ns/borrower", "q"), (1, 1), &[(1, "n00"); 4]);
    put_job(&mut state, ("ns/owner", "other"), (1, 1), &[(1, "")]);
    let actions = [CycleAction::Enqueue, CycleAction::Reclaim];
    assert_eq!(end(&run(&state, &actions), "ns/owner-0").0, TaskStatus::Pipelined);
    let queue = QueueRecord {
        reclaimable: Some(false),
        ..state.queues().get("q").unwrap().record.clone()
    };
    state.put_queue(queue, &Arc::from("test"));
    assert_eq!(end(&run(&state, &actions), "ns/owner-0").0, TaskStatus::Pending);
}

/// Changes a stored task.
fn change_task(state: &mut ClusterState, name: &str, change: impl FnOnce(&mut TaskRecord)) {
    let mut task = state.tasks().get(name).unwrap().record.clone();
    change(&mut task);
    state.put_task(task, &Arc::from("test"));
}

#[test]
fn a_role_that_failed_is_tried_again_only_under_corrected() {
    let mut state = cluster(&[2, 2]);
    put_job(&mut state, ("ns/a", "q"), (1, 1), &[(3, ""), (1, "")]);
    for name in ["ns/a-0", "ns/a-1"] {
        change_task(&mut state, name, |task| {
            let member = GangMember {
                role: Arc::from("worker"),
                ..GangMember::default()
            };
            task.gang = member.into_field();
        });
    }
    let ends = |compatibility| end(&run_under(compatibility, &state, &WHOLE_CYCLE), "ns/a-1").0;
    assert_eq!(ends("corrected"), TaskStatus::Binding);
    assert_eq!(ends("upstream"), TaskStatus::Pending);
}

#[test]
fn memory_below_nothing_refuses_tasks_that_request_none_only_under_upstream() {
    let mut state = cluster(&[4]);
    put_job(&mut state, ("ns/large", "q"), (1, 1), &[(1, "n00")]);
    change_task(&mut state, "ns/large-0", |task| {
        task.requests.set(ResourceId::MEMORY, 9000);
    });
    put_job(&mut state, ("ns/a", "q"), (1, 1), &[(1, "")]);
    change_task(&mut state, "ns/a-0", |task| task.requests.set(ResourceId::MEMORY, 0));
    let ends = |compatibility| end(&run_under(compatibility, &state, &WHOLE_CYCLE), "ns/a-0").0;
    assert_eq!(ends("corrected"), TaskStatus::Binding);
    assert_eq!(ends("upstream"), TaskStatus::Pending);
}

#[test]
fn names_of_actions_are_those_of_documents() {
    for action in CycleAction::ALL {
        assert_eq!(CycleAction::from_name(action.name()), Some(action));
    }
    assert_eq!(CycleAction::from_name("shuffle"), None);
}
