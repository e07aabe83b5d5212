//! Random changes of a cluster state.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::cluster::{
    DISK, GPU, amounts, cluster_state, job, put_job, put_node, put_queue, put_task, queue, reservation, task,
};
use super::plain::{Plain, of};
use crate::model::{
    ClusterState, JobPhase, JobRecord, QueueState, ResourceAmounts, ResourceId, ResourceVector, StateDiff, TaskRecord,
    TaskStatus,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::policy::Compatibility;

/// Sequence of numbers that looks random and is the same in every run.
#[derive(Debug)]
pub(crate) struct HistoryNumbers(pub(crate) u64);

impl HistoryNumbers {
    /// Next number, from 0 and below a limit.
    pub(crate) fn below(&mut self, limit: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % limit
    }
}

const STATUSES: [TaskStatus; 10] = [
    TaskStatus::Pending,
    TaskStatus::Pending,
    TaskStatus::Allocated,
    TaskStatus::Running,
    TaskStatus::Running,
    TaskStatus::Bound,
    TaskStatus::Pipelined,
    TaskStatus::Releasing,
    TaskStatus::Succeeded,
    TaskStatus::Failed,
];
const STATES: [QueueState; 4] = [
    QueueState::Unspecified,
    QueueState::Open,
    QueueState::Open,
    QueueState::Closed,
];
const PHASES: [JobPhase; 5] = [
    JobPhase::Pending,
    JobPhase::Inqueue,
    JobPhase::Running,
    JobPhase::Unknown,
    JobPhase::Completed,
];

fn some(numbers: &mut HistoryNumbers) -> ResourceAmounts {
    let gpu = numbers.below(8) - 3;
    amounts(numbers.below(5) * 700, numbers.below(4) * 333, gpu.max(-1) * 1000)
}

/// Amounts of a record of a queue or a job: some write less than nothing.
fn written(numbers: &mut HistoryNumbers) -> ResourceAmounts {
    let mut own = some(numbers);
    if numbers.below(8) == 0 {
        let kinds = [
            (ResourceId::CPU, -1000),
            (ResourceId::MEMORY, -333),
            (GPU, -1000),
            (GPU, -1),
        ];
        let (id, amount) = kinds[usize::try_from(numbers.below(4)).unwrap()];
        own.set(id, amount);
    }
    own
}

/// One random change of any kind of record.
pub(crate) fn change(state: &mut ClusterState, numbers: &mut HistoryNumbers) {
    let queue_name = |numbers: &mut HistoryNumbers| format!("q{}", numbers.below(5));
    let job_name = |numbers: &mut HistoryNumbers| format!("ns/j{}", numbers.below(8));
    match numbers.below(12) {
        0 => {
            let (given, ready) = (some(numbers), numbers.below(4) > 0);
            put_node(state, usize::try_from(numbers.below(6)).unwrap(), &given, ready);
        }
        1 => drop(state.remove_node(&format!("n{:02}", numbers.below(6)))),
        2 => {
            let mut record = queue(&queue_name(numbers), i32::try_from(numbers.below(4)).unwrap());
            record.capability = (numbers.below(3) == 0).then(|| written(numbers));
            record.guarantee = (numbers.below(3) == 0).then(|| written(numbers));
            record.deserved = (numbers.below(3) > 0).then(|| written(numbers));
            record.priority = i32::try_from(numbers.below(3)).unwrap();
            record.state = STATES[usize::try_from(numbers.below(4)).unwrap()];
            record.parent = Arc::from(format!("q{}", numbers.below(9)));
            if numbers.below(3) > 0 {
                record.parent = Arc::from("root");
            }
            put_queue(state, record);
        }
        3 => drop(state.remove_queue(&queue_name(numbers))),
        4 | 5 => {
            let mut min = (numbers.below(3) > 0).then(|| written(numbers));
            if let Some(min) = min.as_mut().filter(|_| numbers.below(3) == 0) {
                min.set(DISK, 5);
            }
            let phase = PHASES[usize::try_from(numbers.below(5)).unwrap()];
            let record = job(&job_name(numbers), &queue_name(numbers), min, phase);
            let min_member = i32::try_from(numbers.below(4)).unwrap() - 1;
            put_job(state, JobRecord { min_member, ..record });
        }
        6 => drop(state.remove_job(&job_name(numbers))),
        7 => {
            let row = reservation(
                &job_name(numbers),
                &queue_name(numbers),
                i128::from(numbers.below(3000)),
            );
            state.put_reservation(row);
        }
        8 => drop(state.remove_reservation(&job_name(numbers))),
        9 => drop(state.remove_task(&format!("ns/t{}", numbers.below(20)))),
        _ => {
            let status = STATUSES[usize::try_from(numbers.below(10)).unwrap()];
            let name = format!("ns/t{}", numbers.below(20));
            let mut record = task(&name, &job_name(numbers), &some(numbers), status);
            record.gated = numbers.below(5) == 0;
            put_task(state, record);
        }
    }
}

/// Places about half of the waiting tasks, those of a job side by side or not. Returns each as it was and as it is.
pub(crate) fn place_some(state: &mut ClusterState, numbers: &mut HistoryNumbers) -> Vec<(TaskRecord, TaskRecord)> {
    let waiting = |task: &TaskRecord| task.status == TaskStatus::Pending && !task.job.is_empty();
    let mut tasks: Vec<TaskRecord> = state.tasks().iter().map(|(_, stored)| stored.record.clone()).collect();
    tasks.retain(|task| waiting(task) && numbers.below(2) == 0);
    if numbers.below(3) > 0 {
        tasks.sort_by_key(|task| Arc::clone(&task.job));
    }
    let status = [TaskStatus::Allocated, TaskStatus::Pipelined][usize::try_from(numbers.below(2)).unwrap()];
    let placed = tasks.into_iter().map(|before| {
        let mut after = before.clone();
        (after.status, after.node) = (status, Arc::from("n00"));
        (before, after)
    });
    let placed: Vec<_> = placed.collect();
    for (_, after) in &placed {
        put_task(state, after.clone());
    }
    placed
}

/// Checks that a state counts placements in one batch as it counts them one by one. Returns the state after them.
pub(crate) fn assert_batch_equals_single<S: PluginState + Clone + PartialEq>(
    own: &S,
    state: &ClusterState,
    placed: &[(TaskRecord, TaskRecord)],
) -> S {
    let transitions = placed
        .iter()
        .map(|(before, after)| TaskTransition::new(before, after, ""));
    let events = transitions.map(PlacementEvent::placed);
    let events: Vec<PlacementEvent<'_>> = events.collect();
    let (mut batch, mut single) = (own.clone(), own.clone());
    let of_batch = batch.apply(&PluginStateChange::Events(state, &events)).unwrap();
    let of_batch: BTreeSet<Arc<str>> = of_batch.into_iter().collect();
    let of_single: BTreeSet<Arc<str>> = events
        .iter()
        .flat_map(|event| single.apply(&PluginStateChange::Events(state, &[*event])).unwrap())
        .collect();
    assert_eq!((&batch, of_batch), (&single, of_single), "{placed:?}");
    batch
}

/// Checks amounts of the model against those of a plugin.
pub(crate) fn assert_near(what: &str, model: &Plain, own: &ResourceVector) {
    let ids = model.keys().copied().chain(own.iter().map(|(id, _)| id));
    for id in ids {
        let (model, own) = (of(model, id), own.amount(id));
        assert!(
            (model - own).abs() <= 1e-9 * model.abs().max(1.0),
            "{what} {id:?}: {model} and {own}"
        );
    }
}

/// Checks over random histories that a plugin state that follows each step equals one computed from the new cluster state.
/// `compute` computes it; `between` may change the new cluster state, and the followed state before the step.
pub(crate) fn assert_follows<S: PluginState + PartialEq + Debug>(
    compute: impl Fn(&ClusterState, Compatibility) -> S,
    between: impl Fn(&ClusterState, &mut ClusterState, &mut S),
) {
    for compatibility in Compatibility::KINDS {
        for seed in 0..40 {
            let mut numbers = HistoryNumbers(seed);
            let mut state = cluster_state(&[(8000, 4000, 4000)]);
            let mut followed = compute(&state, compatibility);
            for _ in 0..60 {
                let old = state.clone();
                change(&mut state, &mut numbers);
                between(&old, &mut state, &mut followed);
                let step = StateDiff { old: &old, new: &state };
                followed.apply(&PluginStateChange::Step(step)).unwrap();
                assert_eq!(followed, compute(&state, compatibility), "seed {seed}");
            }
        }
    }
}
