//! The state against a model that reads the records plainly, over random histories.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::queue_accounts::testing::cluster::cluster_state;
use super::super::queue_accounts::testing::histories::{
    HistoryNumbers, assert_batch_equals_single, change as history_change, place_some,
};
use super::state::OvercommitState;
use crate::model::{
    ClusterState, GangMember, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId,
    ResourceTable, ResourceVector, SortedTable, StateDiff, TaskFields, TaskRecord, TaskStatus,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::policy::{Compatibility, CompileOptions, compile};

const FACTOR: f64 = 1.2;
const NODES: u8 = 3;

type Step = (u8, u8, u8, u8);

fn empty_state() -> ClusterState {
    let mut index = SortedTable::<NodeSlot>::default();
    for number in 0..NODES {
        index.insert(format!("n{number}").into(), number.into());
    }
    let mut state = ClusterState::new(Arc::new(index), 0);
    for queue in ["q0", "q1"] {
        let record = QueueRecord {
            name: queue.into(),
            ..QueueRecord::default()
        };
        state.put_queue(record, &"s".into());
    }
    state
}

fn amounts(cpu: i64, gpu: Option<i64>) -> ResourceAmounts {
    let gpu = gpu.map(|gpu| (ResourceId(3), gpu));
    [(ResourceId::CPU, cpu), (ResourceId::PODS, 1)]
        .into_iter()
        .chain(gpu)
        .collect()
}

fn task(number: u8, kind: u8, status: u8) -> TaskRecord {
    let statuses = [
        TaskStatus::Pending,
        TaskStatus::Allocated,
        TaskStatus::Pipelined,
        TaskStatus::Running,
        TaskStatus::Releasing,
        TaskStatus::Succeeded,
        TaskStatus::Binding,
    ];
    let status = statuses[usize::from(status) % 7];
    let gate = ["scheduling.volcano.sh/queue-allocation-gate", "other"][usize::from(kind) % 2];
    let gang = GangMember {
        scheduling_gates: vec![gate.into()],
        ..GangMember::default()
    };
    let node = if status == TaskStatus::Pending {
        String::new()
    } else {
        format!("n{}", kind % 4)
    };
    TaskRecord::from(TaskFields {
        name: format!("ns/t{number}").into(),
        job: format!("ns/j{}", number % 3).into(),
        node: node.into(),
        status,
        gated: status == TaskStatus::Pending && kind.is_multiple_of(3),
        gang: gang.into_field(),
        requests: amounts(i64::from(kind) * 7, kind.is_multiple_of(2).then_some(i64::from(kind))),
        ..TaskFields::default()
    })
}

fn change(state: &mut ClusterState, (what, number, kind, more): Step) {
    let source = "s".into();
    match what {
        0 => {
            let record = NodeRecord {
                name: format!("n{}", number % NODES).into(),
                allocatable: amounts(i64::from(kind) * 100, (more % 2 == 0).then_some(50)),
                ready: (more % 3 == 0).then_some(kind % 2 == 0),
                ..NodeRecord::default()
            };
            state.put_node(Arc::new(record), &source);
        }
        1 => drop(state.remove_node(&format!("n{}", number % NODES))),
        2 | 3 => {
            let phases = [
                JobPhase::Inqueue,
                JobPhase::Running,
                JobPhase::Pending,
                JobPhase::Completed,
            ];
            let record = JobRecord {
                name: format!("ns/j{}", number % 3).into(),
                queue: format!("q{}", more % 3).into(),
                phase: phases[usize::from(kind) % 4],
                min_member: i32::from(more % 3),
                min_resources: (kind % 5 != 0).then(|| amounts(i64::from(kind) * 11, (more % 2 == 0).then_some(9))),
                ..JobRecord::default()
            };
            state.put_job(record, &source);
        }
        4 => drop(state.remove_job(&format!("ns/j{}", number % 3))),
        5 => drop(state.remove_task(&format!("ns/t{number}"))),
        _ => state.put_task(task(number, kind, more), &source),
    }
}

/// Sum of some tasks' requests, plainly.
fn sum<'a>(tasks: impl Iterator<Item = &'a TaskRecord>) -> ResourceVector {
    tasks.fold(ResourceVector::default(), |mut sum, task| {
        sum.add(&ResourceVector::from(&task.requests));
        sum
    })
}

/// Each amount less another one, at least 0; only resources that the first one names.
fn less(amounts: &ResourceVector, other: &ResourceVector) -> ResourceVector {
    amounts
        .iter()
        .map(|(id, amount)| (id, (amount - other.amount(id)).max(0.0)))
        .collect()
}

/// Leaves out tasks in Binding that do not fit beside those of their node before them.
fn keep_binding_with_room(state: &ClusterState, tasks: &mut Vec<&TaskRecord>) {
    let mut stayed: Vec<&TaskRecord> = Vec::new();
    tasks.sort_by(|one, other| {
        let key = |task: &TaskRecord| {
            (
                Arc::clone(&task.job),
                task.status == TaskStatus::Binding,
                Arc::clone(&task.name),
            )
        };
        key(one).cmp(&key(other))
    });
    for task in std::mem::take(tasks) {
        let node = state.node_by_name(&task.node).unwrap();
        let used = sum(stayed.iter().copied().filter(|other| other.node == task.node));
        let mut idle = ResourceVector::from(&node.record.allocatable);
        idle.subtract(&used);
        if task.status != TaskStatus::Binding || ResourceVector::from(&task.requests).is_at_most(&idle) {
            stayed.push(task);
        }
    }
    *tasks = stayed;
}

/// Idle and inqueue amounts as the rules say, from the records alone.
fn model(state: &ClusterState, compatibility: Compatibility) -> (ResourceVector, ResourceVector) {
    let tasks = || state.tasks().iter().map(|(_, stored)| &stored.record);
    let ready = |name: &str| {
        let node = state.node_by_name(name);
        node.is_some_and(|node| node.record.is_ready(compatibility))
    };
    let (mut idle, mut inqueue) = (ResourceVector::default(), ResourceVector::default());
    for (_, node) in state.nodes().filter(|(_, node)| ready(&node.record.name)) {
        idle.add(&ResourceVector::from(&node.record.allocatable));
    }
    idle.scale(FACTOR);
    let mut known: Vec<&TaskRecord> = tasks()
        .filter(|task| task.status.is_used() && ready(&task.node))
        .collect();
    if compatibility.is_upstream() {
        keep_binding_with_room(state, &mut known);
    }
    let used = sum(known.into_iter());
    // Every node of these tests has pods.
    let all = state.nodes().any(|(_, node)| ready(&node.record.name)) || compatibility == Compatibility::Corrected;
    for (id, used) in used.iter().filter(|(id, _)| all || *id <= ResourceId::MEMORY) {
        idle.set(id, idle.amount(id) - used);
    }
    for (name, stored) in state.jobs().iter() {
        let job = &stored.record;
        let own = || tasks().filter(|task| task.job == *name);
        let (Some(min), true) = (&job.min_resources, state.queues().contains(&job.queue)) else {
            continue;
        };
        let holding = || own().filter(|task| task.status.is_allocated());
        let min = ResourceVector::from(min);
        let rest = less(&min, &sum(holding()));
        let amounts = match job.phase {
            JobPhase::Inqueue if compatibility.is_upstream() => min,
            JobPhase::Inqueue => rest,
            JobPhase::Running if holding().count() >= usize::try_from(job.min_member).unwrap() => rest,
            JobPhase::Unspecified | JobPhase::Pending | JobPhase::Running | JobPhase::Unknown | JobPhase::Completed => {
                continue;
            }
        };
        let gated = sum(own().filter(|task| task.has_foreign_gate()));
        inqueue.add(&if gated.is_empty() {
            amounts
        } else {
            less(&amounts, &gated)
        });
    }
    (idle, inqueue)
}

fn assert_same(what: &str, own: &ResourceVector, other: &ResourceVector) {
    for id in (0..5).map(ResourceId) {
        assert_eq!(
            own.amount(id).to_bits(),
            (other.amount(id) + 0.0).to_bits(),
            "{what} {id:?}: {own:?} {other:?}"
        );
    }
}

proptest! {
    #[test]
    fn the_state_is_what_the_records_say_however_it_came_about(
        steps in prop::collection::vec((0_u8..10, 0_u8..6, 0_u8..12, 0_u8..12), 1..50),
        corrected in any::<bool>(),
    ) {
        let compatibility = Compatibility::KINDS[usize::from(corrected)];
        let mut state = empty_state();
        let mut advanced = OvercommitState::of(&state, FACTOR, compatibility);
        for step in steps {
            let old = state.clone();
            change(&mut state, step);
            let again = OvercommitState::of(&state, FACTOR, compatibility);
            let step = PluginStateChange::Step(StateDiff { old: &old, new: &state });
            advanced.apply(&step).unwrap();
            prop_assert_eq!(&advanced, &again);
            let (idle, inqueue) = model(&state, compatibility);
            assert_same("idle", &again.idle(), &idle);
            assert_same("inqueue", &again.inqueue(), &inqueue);
        }
    }

    /// Under `corrected` events of a cycle lead where a rebuild leads; under `upstream` placements change nothing.
    #[test]
    fn events_lead_where_a_rebuild_leads(
        steps in prop::collection::vec((0_u8..10, 0_u8..6, 0_u8..12, 0_u8..12), 1..20),
        moves in prop::collection::vec((0_u8..6, 0_u8..12, 0_u8..7), 1..20),
    ) {
        let mut state = empty_state();
        for step in steps {
            change(&mut state, step);
        }
        let mut followed = OvercommitState::of(&state, FACTOR, Compatibility::Corrected);
        let opened = OvercommitState::of(&state, FACTOR, Compatibility::UPSTREAM);
        let mut upstream = opened.clone();
        for (number, kind, status) in moves {
            let after = task(number, kind, status);
            let Some(before) = state.tasks().get(&after.name).map(|stored| stored.record.clone()) else {
                continue;
            };
            let after = TaskRecord { shape: Arc::clone(&before.shape), ..after };
            state.put_task(after.clone(), &"s".into());
            let moved = TaskTransition::new(&before, &after, "");
            let events = [PlacementEvent::Pipeline(moved)];
            followed.apply(&PluginStateChange::Events(&state, &events)).unwrap();
            upstream.apply(&PluginStateChange::Events(&state, &events)).unwrap();
            prop_assert_eq!(&followed, &OvercommitState::of(&state, FACTOR, Compatibility::Corrected));
            prop_assert_eq!(&upstream, &opened);
        }
    }
}

#[test]
fn placements_in_one_batch_count_as_one_by_one() {
    for compatibility in Compatibility::KINDS {
        for seed in 0..60 {
            let mut numbers = HistoryNumbers(seed);
            let mut state = cluster_state(&[(8000, 4000, 4000), (3000, 900, -1)]);
            for _ in 0..80 {
                history_change(&mut state, &mut numbers);
            }
            let own = OvercommitState::of(&state, FACTOR, compatibility);
            let placed = place_some(&mut state, &mut numbers);
            let followed = assert_batch_equals_single(&own, &state, &placed);
            if compatibility == Compatibility::Corrected {
                assert_eq!(
                    followed,
                    OvercommitState::of(&state, FACTOR, compatibility),
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_promise_lasts_until_the_next_vote_unless_the_job_is_enqueued() {
    for compatibility in Compatibility::KINDS {
        let mut state = empty_state();
        let job = |phase| JobRecord {
            name: "ns/j0".into(),
            queue: "q0".into(),
            phase,
            min_resources: Some(amounts(500, None)),
            ..JobRecord::default()
        };
        state.put_job(job(JobPhase::Pending), &"s".into());
        let opened = OvercommitState::of(&state, FACTOR, compatibility);
        let mut own = opened.clone();
        own.enqueue_tentatively(&state, &job(JobPhase::Pending));
        assert!((own.inqueue().amount(ResourceId::CPU) - 500.0).abs() < f64::EPSILON);
        let mut stayed = own.clone();
        own.end_tentative();
        assert_eq!(
            own == opened,
            compatibility == Compatibility::Corrected,
            "the reference forgets nothing"
        );
        state.put_job(job(JobPhase::Inqueue), &"s".into());
        stayed
            .apply(&PluginStateChange::Events(&state, &[PlacementEvent::Enqueue("ns/j0")]))
            .unwrap();
        stayed.end_tentative();
        assert_eq!(stayed, OvercommitState::of(&state, FACTOR, compatibility));
        state.put_job(job(JobPhase::Pending), &"s".into());
        stayed
            .apply(&PluginStateChange::Events(
                &state,
                &[PlacementEvent::Dequeue(&"ns/j0".into())],
            ))
            .unwrap();
        assert_eq!(stayed, opened);
    }
}

#[test]
fn ephemeral_storage_is_promised_under_corrected_only() {
    for compatibility in Compatibility::KINDS {
        let mut state = empty_state();
        let mut names = ResourceTable::default();
        let disk = names.intern("ephemeral-storage", 9).unwrap();
        state.set_resources(Arc::new(names));
        let job = JobRecord {
            name: "ns/j0".into(),
            queue: "q0".into(),
            phase: JobPhase::Running,
            min_resources: Some([(ResourceId::CPU, 3), (disk, 5)].into_iter().collect()),
            ..JobRecord::default()
        };
        state.put_job(job, &"s".into());
        let inqueue = OvercommitState::of(&state, FACTOR, compatibility).inqueue();
        assert!((inqueue.amount(ResourceId::CPU) - 3.0).abs() < f64::EPSILON);
        assert_eq!(inqueue.amount(disk) > 0.0, compatibility == Compatibility::Corrected);
    }
}

#[test]
fn a_factor_that_is_no_number_from_one_counts_as_the_default() {
    let effective = |factor: &str, compatibility: &str| {
        let document = format!(
            "actions: enqueue\ntiers: [{{plugins: [{{name: overcommit, arguments: {{overcommit-factor: {factor}}}}}]}}]\n\
             pumice: {{compatibility: {compatibility}}}\n"
        );
        let compiled = compile(&document, &CompileOptions::default()).unwrap();
        (
            compiled.effective_document.contains("overcommit-factor: 1.2"),
            compiled.report.warnings().count(),
        )
    };
    for compatibility in ["upstream", "corrected"] {
        for factor in ["0.9", "\"1.5\"", "null", "true", "-1"] {
            assert_eq!(effective(factor, compatibility), (true, 1), "{factor}");
        }
        assert_eq!(effective("1.5", compatibility), (false, 0));
    }
    for factor in [".nan", ".inf"] {
        assert_eq!(effective(factor, "corrected"), (true, 1), "{factor}");
        assert_eq!(effective(factor, "upstream"), (false, 0), "{factor}");
    }
}
