//! Differences between the compatibilities.

use std::sync::Arc;

use super::super::super::queue_accounts::testing::cluster::{
    DISK, GPU, amounts, cluster_state, job, put_job, put_queue, put_task, queue, reservation, task,
};
use crate::held_bytes::HeldMemory;
use crate::model::{ClusterState, JobPhase, QueueRecord, ResourceId, TaskRecord, TaskStatus};
use crate::plugin::{PluginContext, VictimKind, VictimQuery};
use crate::plugin_state::{PlacementEvent, PluginStates, TaskTransition};
use crate::plugins::proportion::{PLUGIN, ProportionState};
use crate::policy::{self, Compatibility, CompileOptions, Policy};
use Compatibility::Corrected;

const UPSTREAM: Compatibility = Compatibility::UPSTREAM;

fn policy(compatibility: Compatibility) -> Arc<Policy> {
    let name = compatibility.name();
    let document =
        format!("actions: allocate\ntiers:\n- plugins:\n  - name: proportion\npumice: {{compatibility: {name}}}\n");
    policy::compile(&document, &CompileOptions::default()).unwrap().policy
}

/// Asks the plugin about a cluster state.
fn ask<T>(
    state: &ClusterState,
    compatibility: Compatibility,
    query: impl FnOnce(&dyn crate::plugin::Plugin, PluginContext<'_>) -> T,
) -> T {
    let policy = policy(compatibility);
    let states = policy.compute_plugin_states(state);
    let plugin = policy.registered(PLUGIN).unwrap().admit.clone().unwrap();
    let context = PluginContext {
        cluster_state: state,
        plugin_states: &states,
        now: None,
        after_release: false,
    };
    query(&*plugin, context)
}

fn own_state(states: &PluginStates) -> &ProportionState {
    states.get(PLUGIN).unwrap()
}

/// Two queues with a job each, whose tasks ask for more than the node has.
fn two_queues(weights: [i32; 2]) -> ClusterState {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    for (name, weight) in ["a", "b"].into_iter().zip(weights) {
        put_queue(&mut state, queue(name, weight));
        let own = format!("ns/{name}");
        put_job(&mut state, job(&own, name, None, JobPhase::Running));
        put_task(
            &mut state,
            task(
                &format!("ns/{name}-0"),
                &own,
                &amounts(9000, 0, -1),
                TaskStatus::Pending,
            ),
        );
    }
    state
}

fn deserved(state: &ClusterState, compatibility: Compatibility) -> [f64; 2] {
    let own = ProportionState::of(state, compatibility);
    ["a", "b"].map(|name| own.accounts.account(name).unwrap().deserved.amount(ResourceId::CPU))
}

#[test]
fn weights_below_one_are_a_problem_of_the_queue() {
    let state = two_queues([-3, 2]);
    assert_eq!(
        deserved(&state, UPSTREAM),
        [8000.0, 0.0],
        "the division is turned round"
    );
    assert_eq!(deserved(&state, Corrected), [0.0, 8000.0]);
    let names = [Arc::from("a"), Arc::from("b")];
    let keys = ask(&state, Corrected, |plugin, context| plugin.queue_keys(context, &names)).unwrap();
    let problem = keys[0].as_ref().unwrap_err();
    assert_eq!(
        (problem.code.name(), &*problem.field),
        ("QUEUE_WEIGHT_INVALID", "queues[a].weight")
    );
    assert!(problem.message.contains("set it to 1 or more"), "{}", problem.message);
    assert!(keys[1].is_ok());
    let own = |plugin: &dyn crate::plugin::Plugin, context: PluginContext<'_>| {
        let stored = context.cluster_state.jobs().get("ns/a").unwrap();
        plugin.admit_job(context, &stored.record).unwrap_err().code.name()
    };
    assert_eq!(ask(&state, Corrected, own), "QUEUE_WEIGHT_INVALID");
    assert!(ask(&state, UPSTREAM, |plugin, context| plugin.queue_keys(context, &names)).unwrap()[0].is_ok());
}

#[test]
fn large_weights_do_not_wrap() {
    let state = two_queues([i32::MAX, 1]);
    assert_eq!(deserved(&state, UPSTREAM), [0.0, 0.0]);
    let [most, least] = deserved(&state, Corrected);
    assert!(most > 7999.9 && least > 0.0 && least < 0.1, "{most} {least}");
}

#[test]
fn a_queue_without_jobs_is_answered() {
    let mut state = two_queues([1, 1]);
    put_queue(
        &mut state,
        QueueRecord {
            guarantee: Some(amounts(1000, 0, -1)),
            ..queue("idle", 5)
        },
    );
    let names = [Arc::from("idle")];
    let key = |compatibility| {
        let keys = ask(&state, compatibility, |plugin, context| {
            plugin.queue_keys(context, &names)
        });
        keys.unwrap().remove(0).map_err(|problem| problem.code.name())
    };
    assert_eq!(key(UPSTREAM), Err("REFERENCE_PANICS"));
    assert_eq!(key(Corrected), Ok(vec![0.0, 0.0]));
    let own = ProportionState::of(&state, Corrected);
    assert_eq!(
        own.accounts.account("idle").unwrap().deserved.amount(ResourceId::CPU),
        1000.0
    );
    assert_eq!(
        deserved(&state, Corrected),
        [4000.0, 4000.0],
        "its weight takes no part"
    );
}

/// A job that holds 4,000 of cpu beyond its minimum of 1,000.
fn elastic_job() -> (ClusterState, TaskRecord) {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put_queue(&mut state, queue("a", 1));
    put_job(
        &mut state,
        job("ns/j", "a", Some(amounts(1000, 0, -1)), JobPhase::Running),
    );
    let running = task("ns/t", "ns/j", &amounts(5000, 0, -1), TaskStatus::Running);
    put_task(&mut state, running.clone());
    put_job(
        &mut state,
        job("ns/new", "a", Some(amounts(2000, 0, -1)), JobPhase::Pending),
    );
    (state, running)
}

#[test]
fn elastic_amounts_follow_evictions() {
    let (state, running) = elastic_job();
    let mut released = running.clone();
    released.status = TaskStatus::Releasing;
    let evicted = PlacementEvent::Deallocate(TaskTransition::new(&running, &released, ""));
    let asked = state.jobs().get("ns/new").unwrap();
    for compatibility in Compatibility::KINDS {
        let policy = policy(compatibility);
        let mut states = policy.compute_plugin_states(&state);
        states.apply(&state, &[evicted]).unwrap();
        let elastic = own_state(&states)
            .accounts
            .account("a")
            .unwrap()
            .elastic
            .get(ResourceId::CPU);
        let plugin = policy.registered(PLUGIN).unwrap().admit.clone().unwrap();
        let context = PluginContext {
            cluster_state: &state,
            plugin_states: &states,
            now: None,
            after_release: false,
        };
        let vote = plugin
            .admit_job(context, &asked.record)
            .map_err(|problem| problem.code.name());
        match compatibility {
            Compatibility::Upstream(_) => assert_eq!((elastic, vote.unwrap_err()), (4000, "REFERENCE_PANICS")),
            Corrected => assert_eq!((elastic, vote.unwrap().unwrap().reasons.len()), (0, 0)),
        }
    }
}

#[test]
fn a_promise_does_not_count_against_its_own_job() {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put_queue(&mut state, queue("a", 1));
    put_job(
        &mut state,
        job("ns/j", "a", Some(amounts(5000, 0, -1)), JobPhase::Inqueue),
    );
    let reasons = |state: &ClusterState, compatibility| {
        ask(state, compatibility, |plugin, context| {
            let stored = context.cluster_state.jobs().get("ns/j").unwrap();
            plugin
                .admit_job(context, &stored.record)
                .unwrap()
                .unwrap()
                .reasons
                .len()
        })
    };
    assert_eq!((reasons(&state, UPSTREAM), reasons(&state, Corrected)), (1, 0));
    // A promise that only the ledger knows counts against the job under neither.
    put_job(
        &mut state,
        job("ns/j", "a", Some(amounts(5000, 0, -1)), JobPhase::Pending),
    );
    state.put_reservation(reservation("ns/j", "a", 5000));
    assert_eq!((reasons(&state, UPSTREAM), reasons(&state, Corrected)), (0, 0));
    put_job(
        &mut state,
        job("ns/other", "a", Some(amounts(5000, 0, -1)), JobPhase::Pending),
    );
    let of_other = ask(&state, Corrected, |plugin, context| {
        let stored = context.cluster_state.jobs().get("ns/other").unwrap();
        plugin.admit_job(context, &stored.record).unwrap().unwrap()
    });
    let (reason, measurements) = &of_other.reasons[0];
    assert_eq!((reason.code, &*reason.resource), ("QueueOverCapability", "cpu"));
    let values: Vec<f64> = measurements.iter().map(|measured| measured.value).collect();
    assert_eq!(
        values,
        [5.0, 0.0, 5.0, 10.0, 8.0],
        "cores: requested, held, kept for other jobs, total, limit"
    );
}

#[test]
fn ephemeral_storage_is_reserved() {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put_queue(&mut state, queue("a", 1));
    let mut min = amounts(1000, 0, -1);
    min.set(DISK, 5000);
    put_job(&mut state, job("ns/j", "a", Some(min), JobPhase::Inqueue));
    let reserved = |compatibility| {
        let own = ProportionState::of(&state, compatibility);
        own.accounts.account("a").unwrap().inqueue.get(DISK)
    };
    assert_eq!((reserved(UPSTREAM), reserved(Corrected)), (0, 5000));
}

#[test]
fn reclaim_takes_only_what_is_above() {
    let mut state = two_queues([1, 1]);
    let tasks = [("ns/b-cpu", amounts(6000, 0, -1)), ("ns/b-memory", amounts(0, 500, -1))];
    for (name, given) in &tasks {
        put_task(&mut state, task(name, "ns/b", given, TaskStatus::Running));
    }
    put_task(
        &mut state,
        task("ns/a-own", "ns/a", &amounts(6000, 0, -1), TaskStatus::Running),
    );
    let stored = |name: &str| state.tasks().get(name).unwrap().record.clone();
    let names = ["ns/b-memory", "ns/a-own", "ns/b-cpu", "ns/b-cpu"];
    let candidates = names.map(stored);
    let candidates: Vec<&TaskRecord> = candidates.iter().collect();
    let preemptor = stored("ns/a-0");
    let query = VictimQuery {
        kind: VictimKind::Reclaim,
        preemptor: &preemptor,
        candidates: &candidates,
        eviction_order: crate::plugin::EvictionOrder::default(),
    };
    let goes = |state: &ClusterState, compatibility| {
        ask(state, compatibility, |plugin, context| plugin.victims(context, &query))
            .map_err(|problem| problem.code.name())
    };
    assert_eq!(goes(&state, Corrected), Ok(Some(vec![false, false, true, false])));
    assert_eq!(goes(&state, UPSTREAM), Ok(Some(vec![true, true, true, false])));
    put_queue(
        &mut state,
        QueueRecord {
            reclaimable: Some(false),
            ..queue("b", 1)
        },
    );
    assert_eq!(goes(&state, Corrected), Ok(Some(vec![false; 4])));
}

#[test]
fn equal_tasks_are_admitted_as_often_as_one_by_one() {
    for compatibility in Compatibility::KINDS {
        let mut state = two_queues([1, 1]);
        put_task(
            &mut state,
            task("ns/a-1", "ns/a", &amounts(1300, 0, -1), TaskStatus::Pending),
        );
        let asked = state.tasks().get("ns/a-1").unwrap().record.clone();
        let policy = policy(compatibility);
        let mut states = policy.compute_plugin_states(&state);
        let plugin = policy.registered(PLUGIN).unwrap().admit.clone().unwrap();
        let permitted = |states: &PluginStates| {
            let context = PluginContext {
                cluster_state: &state,
                plugin_states: states,
                now: None,
                after_release: false,
            };
            let opinion = plugin.admit_task(context, "a", &asked).unwrap().unwrap();
            (opinion.reasons.is_empty(), opinion.headroom)
        };
        let (_, headroom) = permitted(&states);
        assert_eq!(headroom, Some(3), "of 4,000");
        let mut placed = asked.clone();
        placed.status = TaskStatus::Allocated;
        let moved = TaskTransition::new(&asked, &placed, "");
        let repeated = TaskTransition {
            repeated: Some(3),
            ..moved
        };
        let mut at_once = states.clone();
        at_once.apply(&state, &[PlacementEvent::Allocate(repeated)]).unwrap();
        for left in (0..3).rev() {
            assert!(permitted(&states).0);
            states.apply(&state, &[PlacementEvent::Allocate(moved)]).unwrap();
            assert_eq!(permitted(&states), (left > 0, Some(left)));
        }
        assert_eq!(own_state(&states), own_state(&at_once));
        assert!(own_state(&states).held_bytes(None) > 0);
    }
}

#[test]
fn a_task_that_nobody_reported_counts_as_waiting() {
    for compatibility in Compatibility::KINDS {
        let mut state = two_queues([1, 3]);
        state.remove_task("ns/a-0");
        let headroom = |cpu: i64| {
            let asked = task("ns/new", "ns/a", &amounts(cpu, 0, -1), TaskStatus::Pending);
            let opinion = ask(&state, compatibility, |plugin, context| {
                plugin.admit_task(context, "a", &asked)
            });
            let opinion = opinion.unwrap().unwrap();
            (opinion.reasons.len(), opinion.headroom)
        };
        assert_eq!(deserved(&state, compatibility)[0], 0.0, "nothing waits");
        assert_eq!(
            (headroom(500), headroom(2001)),
            ((0, Some(4)), (1, Some(0))),
            "a quarter of 8,000"
        );
    }
}

#[test]
fn a_written_capability_of_nothing_is_a_limit() {
    let mut state = two_queues([1, 1]);
    put_queue(
        &mut state,
        QueueRecord {
            capability: Some(amounts(0, 4000, -1)),
            ..queue("a", 1)
        },
    );
    assert_eq!(deserved(&state, UPSTREAM), [4000.0, 4000.0], "0 of cpu is no limit");
    assert_eq!(deserved(&state, Corrected), [0.0, 8000.0]);
}

#[test]
fn a_resource_of_which_all_is_guaranteed_still_limits_what_queues_deserve() {
    let mut state = cluster_state(&[(8000, 8000, 4000)]);
    for (name, guarantee) in [("a", None), ("b", Some(amounts(0, 0, 4000)))] {
        put_queue(
            &mut state,
            QueueRecord {
                guarantee,
                ..queue(name, 1)
            },
        );
        let own = format!("ns/{name}");
        put_job(&mut state, job(&own, name, None, JobPhase::Running));
        let pending = task(
            &format!("ns/{name}-0"),
            &own,
            &amounts(1000, 0, 4000),
            TaskStatus::Pending,
        );
        put_task(&mut state, pending);
    }
    let gpus = |compatibility| {
        let own = ProportionState::of(&state, compatibility);
        ["a", "b"].map(|name| own.accounts.account(name).unwrap().deserved.amount(GPU))
    };
    assert_eq!(gpus(UPSTREAM), [2000.0, 4000.0], "more than there are");
    assert_eq!(gpus(Corrected), [0.0, 4000.0]);
}
