//! Random histories: a state that followed each change equals one computed again, and the plain model.

use std::sync::Arc;

use super::super::super::queue_accounts::testing::cluster::{
    amounts, cluster_state, job, put_job, put_queue, put_task, queue, reservation, task,
};
use super::super::super::queue_accounts::testing::histories::{
    HistoryNumbers, assert_batch_equals_single, assert_near, change, place_some,
};
use super::super::super::queue_accounts::testing::plain;
use crate::model::{ClusterState, JobPhase, ResourceId, StateDiff, TaskStatus};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::plugins::proportion::ProportionState;
use crate::policy::Compatibility;

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
    for compatibility in Compatibility::KINDS {
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
                let step = PluginStateChange::Step(StateDiff { old: &old, new: &state });
                own.apply(&step).unwrap();
                assert_eq!(own, ProportionState::of(&state, compatibility), "seed {seed}");
                assert_equals_model(&state, &own, compatibility);
            }
            let placed = place_some(&mut state, &mut numbers);
            let followed = assert_batch_equals_single(&own, &state, &placed);
            if compatibility == Compatibility::Corrected {
                assert_eq!(followed, ProportionState::of(&state, compatibility), "seed {seed}");
            }
        }
    }
}

#[test]
fn promises_that_are_reported_equal_a_rebuild() {
    for compatibility in Compatibility::KINDS {
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
            own.apply(&PluginStateChange::Events(
                &state,
                &[PlacementEvent::Reserve(&Arc::from(name))],
            ))
            .unwrap();
            assert_eq!(own, ProportionState::of(&state, compatibility), "{name} {queue} {cpu}");
        }
        let inqueue = |queue: &str| own.accounts.account(queue).unwrap().inqueue.get(ResourceId::CPU);
        assert_eq!((inqueue("a"), inqueue("b")), (0, 700), "1,000 are held already");
        for name in ["ns/j", "ns/new"] {
            state.remove_reservation(name);
            own.apply(&PluginStateChange::Events(
                &state,
                &[PlacementEvent::Reserve(&Arc::from(name))],
            ))
            .unwrap();
            assert_eq!(own, ProportionState::of(&state, compatibility));
        }
    }
}
