//! Cycles on small clusters.

use std::sync::Arc;

use super::{CycleAction, CycleEvent, CycleReport, run_cycle};
use crate::model::{
    ClusterState, GangMember, GangMinimums, JobPhase, JobRecord, NodeRecord, NodeSlot, PREEMPTABLE, QueueRecord,
    ResourceAmounts, ResourceId, SortedTable, SubGroupPolicy, TaskFields, TaskRecord, TaskStatus, TextMap,
};
use crate::policy::{CompileOptions, compile};

/// Configuration of Volcano's chart.
const CHART: &str = include_str!("../../../../examples/queues/policy.yaml");

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
pub(super) fn cluster(nodes: &[i64]) -> ClusterState {
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

pub(super) fn put_queue(state: &mut ClusterState, name: &str) {
    let queue = QueueRecord {
        name: Arc::from(name),
        ..QueueRecord::default()
    };
    state.put_queue(queue, &Arc::from("test"));
}

/// Puts a job with tasks of this cpu; a task with a node runs there.
pub(super) fn put_job(
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
    let document = format!("{CHART}pumice: {{compatibility: {compatibility}}}\n");
    let policy = compile(&document, &CompileOptions::default()).unwrap().policy;
    run_cycle(state.clone(), &policy, actions, None).unwrap()
}

/// Status and node of a task after a cycle.
pub(super) fn end(report: &CycleReport, task: &str) -> (TaskStatus, String) {
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
pub(super) fn change_task(state: &mut ClusterState, name: &str, change: impl FnOnce(&mut TaskRecord)) {
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
    assert_eq!(CycleAction::from_name("gangpreempt"), None);
}

/// Puts the tasks of a job into groups of a policy `part`, and gives the job the policy.
fn put_groups(state: &mut ClusterState, job: &str, (size, least): (i32, i32), values: &[&str]) {
    for (number, value) in values.iter().enumerate() {
        change_task(state, &format!("{job}-{number}"), |task| {
            let member = GangMember {
                sub_group: Arc::from(format!("part/{value}")),
                ..GangMember::default()
            };
            task.gang = member.into_field();
        });
    }
    let mut record = state.jobs().get(job).unwrap().record.clone();
    let policy = SubGroupPolicy {
        name: Arc::from("part"),
        size: Some(size),
        min_groups: Some(least),
        selector: None,
    };
    let minimums = GangMinimums {
        sub_groups: vec![policy],
        ..GangMinimums::default()
    };
    record.gang = minimums.into_field();
    state.put_job(record, &Arc::from("test"));
}

#[test]
fn a_group_that_does_not_fit_leaves_its_places_to_another() {
    let mut state = cluster(&[3]);
    put_job(&mut state, ("ns/a", "q"), (2, 1), &[(2, ""), (2, ""), (1, ""), (1, "")]);
    put_groups(&mut state, "ns/a", (2, 1), &["0", "0", "9", "9"]);
    for compatibility in ["corrected", "upstream"] {
        let report = run_under(compatibility, &state, &WHOLE_CYCLE);
        let ends: Vec<TaskStatus> = (0..4).map(|number| end(&report, &format!("ns/a-{number}")).0).collect();
        let (waits, starts) = (TaskStatus::Pending, TaskStatus::Binding);
        assert_eq!(ends, [waits, waits, starts, starts], "{compatibility}");
    }
    // Two groups are needed, and one fits: nothing starts.
    put_groups(&mut state, "ns/a", (2, 2), &["0", "0", "9", "9"]);
    let report = run(&state, &WHOLE_CYCLE);
    assert!((0..4).all(|number| end(&report, &format!("ns/a-{number}")).0 == TaskStatus::Pending));
}

#[test]
fn groups_that_the_job_needs_come_first_then_those_of_high_priority() {
    let mut state = cluster(&[2]);
    put_job(&mut state, ("ns/a", "q"), (1, 1), &[(1, ""); 6]);
    put_groups(&mut state, "ns/a", (2, 0), &["1", "1", "10", "10", "9", "9"]);
    let started = |state: &ClusterState| {
        let report = run(state, &WHOLE_CYCLE);
        let starts = |number: &usize| end(&report, &format!("ns/a-{number}")).0 == TaskStatus::Binding;
        (0..6_usize).filter(starts).collect::<Vec<_>>()
    };
    assert_eq!(started(&state), [0, 1], "by number");
    change_task(&mut state, "ns/a-5", |task| task.priority = 5);
    assert_eq!(started(&state), [4, 5], "by priority");
    let mut other = state.jobs().get("ns/a").unwrap().record.clone();
    let mut minimums = GangMinimums::clone(other.gang.as_ref().unwrap());
    minimums.sub_groups.push(SubGroupPolicy {
        name: Arc::from("late"),
        size: Some(2),
        min_groups: Some(1),
        selector: None,
    });
    other.gang = minimums.into_field();
    state.put_job(other, &Arc::from("test"));
    for number in [2, 3] {
        change_task(&mut state, &format!("ns/a-{number}"), |task| {
            let member = GangMember {
                sub_group: Arc::from("late/x"),
                ..GangMember::default()
            };
            task.gang = member.into_field();
        });
    }
    assert_eq!(started(&state), [2, 3], "a group that is needed");
}
