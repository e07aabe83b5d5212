//! Changes of a cycle applied together, compared with the same changes one by one: on random clusters, under every
//! plugin, whether they fit or not.

use std::sync::Arc;

use proptest::prelude::*;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle, SessionChange, TaskMoved, TaskPlacement};
use pumice_engine::plugins::capacity_card::CapacityState;
use pumice_engine::plugins::drf::DrfState;

use super::case::{PlaceCase, case};
use super::engine::{cases, policy};
use crate::support::engine;

/// Random change: its kind, its task and its node.
pub(super) type RandomChange = (u8, prop::sample::Index, prop::sample::Index);

/// Tasks in rows, as a scheduler places them, and some that do not fit.
pub(super) fn steps() -> impl Strategy<Value = Vec<RandomChange>> {
    prop::collection::vec(
        (0_u8..40, any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        0..60,
    )
}

fn changes(case: &PlaceCase, steps: &[RandomChange], sorted: bool) -> Vec<SessionChange> {
    let mut tasks: Vec<String> = (0..case.groups.len()).flat_map(|group| case.names(group)).collect();
    tasks.extend((0..12).map(|number| format!("ns/there-{number}")));
    let mut nodes = case.nodes();
    nodes.extend(["n001".to_owned(), "nowhere".to_owned()]);
    let mut steps = steps.to_vec();
    if sorted {
        steps.sort_by_key(|(_, task, _)| task.index(tasks.len()));
    }
    let change = |(what, task, node): &RandomChange| {
        let node: Arc<str> = Arc::from(&*nodes[node.index(nodes.len())]);
        let task: Arc<str> = match what {
            0 => Arc::from("ns/nobody"),
            _ => Arc::from(&*tasks[task.index(tasks.len())]),
        };
        let card: Arc<str> = Arc::from(["", "", "A", "B"][usize::from(*what) % 4]);
        let to = TaskPlacement {
            task: Arc::clone(&task),
            node,
            card,
            devices: 0,
        };
        match what {
            0..26 => SessionChange::Allocate(to),
            26..34 => SessionChange::Pipeline(to),
            34 => SessionChange::Unallocate(task),
            35 => SessionChange::Unpipeline(task),
            36 => SessionChange::Evict(task),
            37 => SessionChange::Unevict(task),
            38 => SessionChange::Savepoint("mark".into()),
            _ => SessionChange::JobEnqueued("ns/job".into()),
        }
    };
    steps.iter().map(change).collect()
}

/// Content of a cycle without its plugin states.
fn state(cycle: &SchedulingCycle) -> String {
    let cluster_state = cycle.cluster_state();
    let tasks: Vec<_> = cluster_state.tasks().iter().collect();
    let held: Vec<_> = cluster_state
        .jobs()
        .iter()
        .map(|(job, _)| cluster_state.job_allocated(job))
        .collect();
    format!("{:?}{tasks:?}{held:?}", cluster_state.chunks())
}

/// Changes of tasks; `cards`: with the requested cards.
fn moved(cycle: &SchedulingCycle, cards: bool) -> Vec<(Arc<str>, TaskMoved)> {
    let moved = cycle.moved_tasks().map(|(task, moved)| {
        let mut moved = moved.clone();
        if !cards {
            moved.card = Arc::default();
        }
        (Arc::clone(task), moved)
    });
    moved.collect()
}

/// Checks that both cycles are equal to the last bit.
pub(super) fn same(one: &SchedulingCycle, other: &SchedulingCycle, cards: bool) {
    // The texts are too long for a message.
    assert!(state(one) == state(other), "nodes, tasks, and what jobs hold");
    assert_eq!(moved(one, cards), moved(other, cards));
    let drf = |cycle: &SchedulingCycle| cycle.plugin_states().get::<DrfState>("drf").cloned();
    assert_eq!(drf(one), drf(other));
    let cards = |cycle: &SchedulingCycle| format!("{:?}", cycle.plugin_states().get::<CapacityState>("capacity-card"));
    assert!(cards(one) == cards(other), "cards");
}

/// Bytes of a few blocks of a list, by which two ways to the same content may differ.
const BLOCK_BYTES: usize = 4 << 10;

/// Applies changes together and one by one.
pub(super) fn check(case: &PlaceCase, steps: &[RandomChange], sorted: bool) {
    let policy = policy(case);
    let mut cluster = case.cluster();
    for (number, task) in cluster.tasks.iter_mut().enumerate() {
        match number % 5 {
            1 => "ns/other".clone_into(&mut task.job),
            4 => task.job.clear(),
            _ => {}
        }
    }
    let cluster_state = engine::cluster_state(&cluster);
    let derived = policy.compute_plugin_states(&cluster_state);
    let begun = SchedulingCycle::new(cluster_state, policy.node_change_rules(), derived);
    let changes = changes(case, steps, sorted);
    let (mut together, mut alone) = (begun.clone(), begun);
    let outcome = together.apply(&changes);
    let mut plain = Ok(ChangeOutcome::default());
    for (number, change) in changes.iter().enumerate() {
        match alone.apply_from(number, std::slice::from_ref(change)) {
            Ok(done) => plain.as_mut().unwrap().merge(done),
            Err(refused) => {
                plain = Err(refused);
                break;
            }
        }
    }
    assert_eq!(outcome, plain);
    if plain.is_ok() {
        same(&together, &alone, true);
        let back = [SessionChange::RollbackTo("mark".into())];
        assert_eq!(together.apply(&back), alone.apply(&back));
        same(&together, &alone, true);
        // Lists that grew together are cut otherwise than lists that grew one by one.
        let (more, less) = (together.bytes().max(alone.bytes()), together.bytes().min(alone.bytes()));
        assert!(
            more - less <= BLOCK_BYTES + less / 5,
            "{more} bytes are not about {less}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn changes_together_do_what_each_does_by_itself(case in case(12), steps in steps(), sorted: bool) {
        check(&case, &steps, sorted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn changes_together_do_what_each_does_by_itself_over_several_chunks(
        case in case(600),
        steps in steps(),
        sorted: bool,
    ) {
        check(&case, &steps, sorted);
    }
}
