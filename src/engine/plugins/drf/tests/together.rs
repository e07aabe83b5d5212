//! Changes that are taken together against the same ones, one after the other.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{Drf, NAME};
use super::properties::{Numbers, cluster};
use crate::engine::cycle::{Change, Cycle, Outcome, Placement};
use crate::engine::derived::DerivedSet;
use crate::engine::model::TaskStatus;
use crate::engine::policy::Compatibility;

/// Tasks that wait, some of them twice, in an order of their own.
fn changes(cycle: &Cycle, numbers: &mut Numbers) -> Vec<Change> {
    let tasks = cycle.view().tasks().iter();
    let waiting = tasks.filter(|(_, task)| task.record.status == TaskStatus::Pending || numbers.below(9) == 0);
    let mut names: Vec<Arc<str>> = waiting.map(|(name, _)| Arc::clone(name)).collect();
    for at in 0..names.len() {
        let other = at + numbers.below(names.len() - at).min(3);
        names.swap(at, other);
    }
    let change = |task: Arc<str>| {
        let to = Placement {
            task: Arc::clone(&task),
            node: "n".into(),
            card: Arc::default(),
        };
        match numbers.below(12) {
            0 => Change::Evict(task),
            1..=3 => Change::Pipeline(to),
            _ => Change::Allocate(to),
        }
    };
    names.into_iter().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn tasks_that_are_put_together_count_as_one_after_the_other(seed: u64, hierarchy: bool) {
        let mut numbers = Numbers::new(seed);
        let view = cluster(&mut numbers);
        let mut derived = DerivedSet::default();
        derived.insert(NAME.into(), Arc::new(Drf::build(&view, Compatibility::Corrected, hierarchy)));
        let mut together = Cycle::new(view, Compatibility::Corrected, derived);
        let mut alone = together.clone();
        let changes = changes(&together, &mut numbers);
        let outcome = together.apply(&changes).unwrap();
        let mut plain = Outcome::default();
        for (number, change) in changes.iter().enumerate() {
            plain.also(alone.apply_from(number, std::slice::from_ref(change)).unwrap());
        }
        prop_assert_eq!(outcome, plain);
        let drf = |cycle: &Cycle| cycle.derived().get::<Drf>(NAME).unwrap().clone();
        prop_assert_eq!(drf(&together), drf(&alone));
        prop_assert_eq!(drf(&together), Drf::build(together.view(), Compatibility::Corrected, hierarchy));
    }
}
