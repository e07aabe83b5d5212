//! Property tests: the fast tree equals the plain one, bit for bit, over random trees and changes.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::{DrfState, NAME};
use super::tree_changes::{SeededNumbers, check_random_changes, full_cluster_state, random_cluster_state};
use crate::cycle::{SchedulingCycle, SessionChange};
use crate::model::{TaskRecord, TaskStatus};
use crate::plugin_state::PluginStates;
use crate::policy::Compatibility;

/// Number of changes of a case.
const STEPS: usize = 30;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn trees_equal_a_plain_recomputation_under_upstream(seed in any::<u64>()) {
        let mut numbers = SeededNumbers::new(seed);
        check_random_changes(random_cluster_state(&mut numbers), (&mut numbers, STEPS), Compatibility::UPSTREAM)?;
    }

    #[test]
    fn trees_equal_a_plain_recomputation_under_corrected(seed in any::<u64>()) {
        let mut numbers = SeededNumbers::new(seed);
        check_random_changes(random_cluster_state(&mut numbers), (&mut numbers, STEPS), Compatibility::Corrected)?;
    }
}

/// Checks random full clusters; resources run out in some of them.
fn check_resource_flips(compatibility: Compatibility) {
    const CASES: u32 = 40;
    let flips = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let followed = runner.run(&any::<u64>(), |seed| {
        let mut numbers = SeededNumbers::new(seed);
        flips.set(
            flips.get() + check_random_changes(full_cluster_state(&mut numbers), (&mut numbers, STEPS), compatibility)?,
        );
        Ok(())
    });
    followed.unwrap();
    assert!(flips.get() > CASES as usize);
}

#[test]
fn trees_equal_a_plain_recomputation_when_resources_flip_under_upstream() {
    check_resource_flips(Compatibility::UPSTREAM);
}

#[test]
fn trees_equal_a_plain_recomputation_when_resources_flip_under_corrected() {
    check_resource_flips(Compatibility::Corrected);
}

/// Judges each candidate by itself, in the state after the evictions before it.
fn victims_one_by_one(
    cycle: &SchedulingCycle,
    preemptor: &TaskRecord,
    candidates: &[&TaskRecord],
    reclaim: bool,
) -> Vec<bool> {
    let mut cycle = cycle.clone();
    let judged = candidates.iter().map(|candidate| {
        let drf: &DrfState = cycle.plugin_states().get(NAME).unwrap();
        let goes = if reclaim {
            drf.reclaim(preemptor, &[candidate]).unwrap().unwrap()
        } else {
            drf.preempt(preemptor, &[candidate]).unwrap()
        };
        if goes[0] {
            cycle
                .apply(&[SessionChange::Evict(Arc::clone(&candidate.name))])
                .unwrap();
        }
        goes[0]
    });
    judged.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn judging_candidates_together_equals_one_by_one(seed in any::<u64>()) {
        let mut numbers = SeededNumbers::new(seed);
        let cluster_state = full_cluster_state(&mut numbers);
        let all = || cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
        let waiting: Vec<&TaskRecord> = all().filter(|task| task.status == TaskStatus::Pending).collect();
        let candidates: Vec<&TaskRecord> = all().filter(|task| task.status.is_allocated()).collect();
        let mut derived = PluginStates::default();
        derived.insert(NAME.into(), Arc::new(DrfState::build(&cluster_state, Compatibility::Corrected, true)));
        let cycle = SchedulingCycle::new(cluster_state.clone(), Compatibility::Corrected.into(), derived);
        let drf: &DrfState = cycle.plugin_states().get(NAME).unwrap();
        for _ in 0..3 {
            let preemptor = waiting[numbers.below(waiting.len())];
            let preempted = drf.preempt(preemptor, &candidates).unwrap();
            prop_assert_eq!(preempted, victims_one_by_one(&cycle, preemptor, &candidates, false));
            let reclaimed = drf.reclaim(preemptor, &candidates).unwrap().unwrap();
            prop_assert_eq!(reclaimed, victims_one_by_one(&cycle, preemptor, &candidates, true));
        }
    }
}
