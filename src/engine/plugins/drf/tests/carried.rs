//! Shares that are carried to the next View against shares worked out anew.

use proptest::prelude::*;

use super::super::Drf;
use super::cluster::source;
use super::properties::{Numbers, cluster};
use crate::engine::model::{Changes, TaskRecord, TaskStatus, View};
use crate::engine::policy::Compatibility;

const STATUSES: [TaskStatus; 9] = [
    TaskStatus::Pending,
    TaskStatus::Allocated,
    TaskStatus::Pipelined,
    TaskStatus::Bound,
    TaskStatus::Running,
    TaskStatus::Releasing,
    TaskStatus::Succeeded,
    TaskStatus::Failed,
    TaskStatus::Unknown,
];

/// Changes some tasks. True if none of them began or ceased to ask for something.
fn change(view: &mut View, numbers: &mut Numbers) -> bool {
    let tasks: Vec<TaskRecord> = view.tasks().iter().map(|(_, task)| task.record.clone()).collect();
    let over = |status| matches!(status, TaskStatus::Succeeded | TaskStatus::Failed);
    let mut moved = true;
    for _ in 0..numbers.below(4) {
        if tasks.is_empty() {
            return moved;
        }
        let mut task = tasks[numbers.below(tasks.len())].clone();
        let before = view.tasks().get(&task.name).map(|task| task.record.status);
        task.status = numbers.of(&STATUSES);
        task.gated = numbers.below(8) == 0;
        moved &= before.is_some_and(|before| over(before) == over(task.status));
        if numbers.below(8) == 0 {
            moved = false;
            view.remove_task(&task.name);
        } else {
            view.put_task(task, &source());
        }
    }
    moved
}

proptest! {
    #[test]
    fn what_is_carried_equals_what_is_worked_out_anew(seed: u64, hierarchy: bool, corrected: bool) {
        let compatibility = if corrected { Compatibility::Corrected } else { Compatibility::Upstream };
        let mut numbers = Numbers::new(seed);
        let mut view = cluster(&mut numbers);
        let mut drf = Drf::build(&view, compatibility, hierarchy);
        for _ in 0..20 {
            let mut next = view.clone();
            let moved = change(&mut next, &mut numbers);
            let anew = Drf::build(&next, compatibility, hierarchy);
            let carried = drf.carried(&Changes { old: &view, new: &next });
            prop_assert!(carried.is_some() || !moved, "tasks only moved");
            if let Some(carried) = carried {
                prop_assert_eq!(&carried, &anew);
            }
            (view, drf) = (next, anew);
        }
    }
}
