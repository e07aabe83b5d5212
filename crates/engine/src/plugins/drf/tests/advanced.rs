//! Tests: shares advanced to the next cluster state equal shares computed from it.

use proptest::prelude::*;

use super::super::DrfState;
use super::cluster::source_name;
use super::tree_changes::{SeededNumbers, random_cluster_state};
use crate::model::{ClusterState, StateDiff, TaskRecord, TaskStatus};
use crate::policy::Compatibility;

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

/// Changes some tasks. True if none of them began or ceased to request something.
fn random_record_change(cluster_state: &mut ClusterState, numbers: &mut SeededNumbers) -> bool {
    let tasks: Vec<TaskRecord> = cluster_state
        .tasks()
        .iter()
        .map(|(_, task)| task.record.clone())
        .collect();
    let over = |status| matches!(status, TaskStatus::Succeeded | TaskStatus::Failed);
    let mut moved = true;
    for _ in 0..numbers.below(4) {
        if tasks.is_empty() {
            return moved;
        }
        let mut task = tasks[numbers.below(tasks.len())].clone();
        let before = cluster_state.tasks().get(&task.name).map(|task| task.record.status);
        task.status = numbers.pick(&STATUSES);
        task.gated = numbers.below(8) == 0;
        moved &= before.is_some_and(|before| over(before) == over(task.status));
        if numbers.below(8) == 0 {
            moved = false;
            cluster_state.remove_task(&task.name);
        } else {
            cluster_state.put_task(task, &source_name());
        }
    }
    moved
}

proptest! {
    #[test]
    fn advanced_state_equals_a_rebuilt_one(seed: u64, hierarchy: bool, corrected: bool) {
        let compatibility = if corrected { Compatibility::Corrected } else { Compatibility::UPSTREAM };
        let mut numbers = SeededNumbers::new(seed);
        let mut cluster_state = random_cluster_state(&mut numbers);
        let mut drf = DrfState::build(&cluster_state, compatibility, hierarchy);
        for _ in 0..20 {
            let mut next = cluster_state.clone();
            let moved = random_record_change(&mut next, &mut numbers);
            let rebuilt = DrfState::build(&next, compatibility, hierarchy);
            let advanced = drf.advanced(&StateDiff { old: &cluster_state, new: &next });
            prop_assert!(advanced.is_some() || !moved, "tasks only moved");
            if let Some(advanced) = advanced {
                prop_assert_eq!(&advanced, &rebuilt);
            }
            (cluster_state, drf) = (next, rebuilt);
        }
    }
}
