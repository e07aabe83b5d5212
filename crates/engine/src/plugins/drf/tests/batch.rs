//! Tests: a batch of changes equals the same changes one after the other.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{DrfState, NAME};
use super::tree_changes::{SeededNumbers, random_cluster_state};
use crate::cycle::{ChangeOutcome, SchedulingCycle, SessionChange, TaskPlacement};
use crate::model::TaskStatus;
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility;

/// Random changes of waiting tasks, in random order, some of them twice.
fn random_changes(cycle: &SchedulingCycle, numbers: &mut SeededNumbers) -> Vec<SessionChange> {
    let tasks = cycle.cluster_state().tasks().iter();
    let waiting = tasks.filter(|(_, task)| task.record.status == TaskStatus::Pending || numbers.below(9) == 0);
    let mut names: Vec<Arc<str>> = waiting.map(|(name, _)| Arc::clone(name)).collect();
    for at in 0..names.len() {
        let other = at + numbers.below(names.len() - at).min(3);
        names.swap(at, other);
    }
    let change = |task: Arc<str>| {
        let to = TaskPlacement {
            task: Arc::clone(&task),
            node: "n".into(),
            card: Arc::default(),
            devices: 0,
        };
        match numbers.below(12) {
            0 => SessionChange::Evict(task),
            1..=3 => SessionChange::Pipeline(to),
            _ => SessionChange::Allocate(to),
        }
    };
    names.into_iter().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn batch_of_changes_equals_single_changes(seed: u64, hierarchy: bool) {
        let mut numbers = SeededNumbers::new(seed);
        let cluster_state = random_cluster_state(&mut numbers);
        let mut derived = PluginStates::default();
        derived.insert(NAME.into(), Arc::new(DrfState::build(&cluster_state, Compatibility::Corrected, hierarchy)));
        let mut together = SchedulingCycle::new(cluster_state, Compatibility::Corrected.into(), derived);
        let mut alone = together.clone();
        let changes = random_changes(&together, &mut numbers);
        let outcome = together.apply(&changes).unwrap();
        let mut plain = ChangeOutcome::default();
        for (number, change) in changes.iter().enumerate() {
            plain.merge(alone.apply_from(number, std::slice::from_ref(change)).unwrap());
        }
        prop_assert_eq!(outcome, plain);
        let drf = |cycle: &SchedulingCycle| cycle.plugin_states().get::<DrfState>(NAME).unwrap().clone();
        prop_assert_eq!(drf(&together), drf(&alone));
        prop_assert_eq!(drf(&together), DrfState::build(together.cluster_state(), Compatibility::Corrected, hierarchy));
    }
}
