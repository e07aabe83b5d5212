//! Random histories: a state that followed each change equals one computed again, and the plain model.

use std::sync::Arc;

use super::cluster::{
    DISK, amounts, cluster_state, job, put_job, put_node, put_queue, put_task, queue, reservation, task,
};
use super::plain::{self, Plain, of};
use crate::model::{ClusterState, JobPhase, ResourceId, ResourceVector, StateDiff, TaskStatus};
use crate::plugin_state::{PlacementEvent, PluginState};
use crate::plugins::proportion::ProportionState;
use crate::policy::Compatibility;

/// Sequence of numbers that looks random and is the same in every run.
struct HistoryNumbers(u64);

impl HistoryNumbers {
    fn below(&mut self, limit: i64) -> i64 {
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
const PHASES: [JobPhase; 5] = [
    JobPhase::Pending,
    JobPhase::Inqueue,
    JobPhase::Running,
    JobPhase::Unknown,
    JobPhase::Completed,
];

/// One random change of any kind of record.
fn change(state: &mut ClusterState, numbers: &mut HistoryNumbers) {
    let some = |numbers: &mut HistoryNumbers| {
        let gpu = numbers.below(8) - 3;
        amounts(numbers.below(5) * 700, numbers.below(4) * 333, gpu.max(-1) * 1000)
    };
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
            record.capability = (numbers.below(3) == 0).then(|| some(numbers));
            record.guarantee = (numbers.below(3) == 0).then(|| some(numbers));
            put_queue(state, record);
        }
        3 => drop(state.remove_queue(&queue_name(numbers))),
        4 | 5 => {
            let mut min = (numbers.below(3) > 0).then(|| some(numbers));
            if let Some(min) = min.as_mut().filter(|_| numbers.below(3) == 0) {
                min.set(DISK, 5);
            }
            let phase = PHASES[usize::try_from(numbers.below(5)).unwrap()];
            put_job(state, job(&job_name(numbers), &queue_name(numbers), min, phase));
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

fn assert_near(what: &str, model: &Plain, own: &ResourceVector) {
    let ids = model.keys().copied().chain(own.iter().map(|(id, _)| id));
    for id in ids {
        let (model, own) = (of(model, id), own.amount(id));
        assert!(
            (model - own).abs() <= 1e-9 * model.abs().max(1.0),
            "{what} {id:?}: {model} and {own}"
        );
    }
}

fn assert_equals_model(state: &ClusterState, own: &ProportionState, compatibility: Compatibility) {
    for (name, model) in plain::queues(state, compatibility) {
        let account = own.accounts.account(&name).unwrap();
        assert_near(
            &format!("{name} allocated"),
            &model.allocated,
            &(&account.allocated).into(),
        );
        assert_near(&format!("{name} request"), &model.request, &(&account.request).into());
        assert_near(&format!("{name} elastic"), &model.elastic, &(&account.elastic).into());
        assert_near(&format!("{name} inqueue"), &model.inqueue, &(&account.inqueue).into());
        assert_near(
            &format!("{name} real"),
            &model.real_capability,
            &account.limits.real_capability,
        );
        if compatibility == Compatibility::Corrected || model.jobs > 0 {
            assert_near(&format!("{name} deserved"), &model.deserved, &account.deserved);
            assert!(
                (model.share - account.share).abs() < 1e-9,
                "{name}: {} {}",
                model.share,
                account.share
            );
        }
    }
}

#[test]
fn state_that_followed_equals_a_rebuild() {
    for compatibility in Compatibility::ALL {
        for seed in 0..60 {
            let mut numbers = HistoryNumbers(seed);
            let mut state = cluster_state(&[(8000, 4000, 4000), (3000, 900, -1)]);
            for number in 0..3 {
                put_queue(&mut state, queue(&format!("q{number}"), 1 + number));
            }
            let mut own = ProportionState::of(&state, compatibility);
            for _ in 0..40 {
                let old = state.clone();
                for _ in 0..=numbers.below(3) {
                    change(&mut state, &mut numbers);
                }
                let diff = StateDiff { old: &old, new: &state };
                let next = own.advance(&diff).unwrap();
                let next: &dyn std::any::Any = &*next;
                own = next.downcast_ref::<ProportionState>().unwrap().clone();
                assert_eq!(own, ProportionState::of(&state, compatibility), "seed {seed}");
                assert_equals_model(&state, &own, compatibility);
            }
        }
    }
}

#[test]
fn promises_that_are_reported_equal_a_rebuild() {
    for compatibility in Compatibility::ALL {
        let mut state = cluster_state(&[(8000, 4000, 4000)]);
        put_queue(&mut state, queue("a", 1));
        put_queue(&mut state, queue("b", 2));
        put_job(
            &mut state,
            job("ns/j", "a", Some(amounts(3000, 0, -1)), JobPhase::Pending),
        );
        put_task(
            &mut state,
            task("ns/t", "ns/j", &amounts(1000, 0, -1), TaskStatus::Running),
        );
        let mut own = ProportionState::of(&state, compatibility);
        let rows = [
            ("ns/j", "a", 3000),
            ("ns/j", "b", 500),
            ("ns/new", "b", 700),
            ("ns/j", "a", 200),
        ];
        for (name, queue, cpu) in rows {
            state.put_reservation(reservation(name, queue, cpu));
            own.apply(&state, &PlacementEvent::Reserve(&Arc::from(name))).unwrap();
            assert_eq!(own, ProportionState::of(&state, compatibility), "{name} {queue} {cpu}");
        }
        let inqueue = |queue: &str| own.accounts.account(queue).unwrap().inqueue.get(ResourceId::CPU);
        assert_eq!((inqueue("a"), inqueue("b")), (0, 700), "1,000 are held already");
        for name in ["ns/j", "ns/new"] {
            state.remove_reservation(name);
            own.apply(&state, &PlacementEvent::Reserve(&Arc::from(name))).unwrap();
            assert_eq!(own, ProportionState::of(&state, compatibility));
        }
    }
}
