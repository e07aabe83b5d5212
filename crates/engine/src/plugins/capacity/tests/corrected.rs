//! Differences between the compatibilities.

use std::sync::Arc;

use super::super::super::queue_accounts::QueueTotals;
use super::super::super::queue_accounts::testing::cluster::{
    amounts, cluster_state, job, put_job, put_queue, put_task, queue, task,
};
use crate::model::{
    ClusterState, JobPhase, Problem, QueueRecord, QueueState, ResourceAmounts, ResourceId, TaskRecord, TaskStatus,
};
use crate::plugin::{EvictionOrder, Plugin, PluginContext, VictimKind, VictimQuery};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::plugins::capacity::{PLUGIN, QueueCapacityState};
use crate::policy::{self, Compatibility, CompileOptions, Policy};
use Compatibility::Corrected;

const UPSTREAM: Compatibility = Compatibility::UPSTREAM;

fn policy(compatibility: Compatibility) -> Arc<Policy> {
    let name = compatibility.name();
    let document = format!(
        "actions: allocate\ntiers:\n- plugins:\n  - {{name: capacity, enableHierarchy: true}}\npumice: {{compatibility: {name}}}\n"
    );
    policy::compile(&document, &CompileOptions::default()).unwrap().policy
}

/// Asks the plugin about a cluster state.
fn ask<T>(
    state: &ClusterState,
    compatibility: Compatibility,
    query: impl FnOnce(&dyn Plugin, PluginContext<'_>) -> T,
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

/// Codes of the reasons against the job of a queue.
fn codes(state: &ClusterState, compatibility: Compatibility, queue: &str) -> Result<Vec<&'static str>, Problem> {
    ask(state, compatibility, |plugin, context| {
        let stored = context.cluster_state.jobs().get(&format!("ns/{queue}")).unwrap();
        let opinion = plugin.admit_job(context, &stored.record)?.unwrap();
        Ok(opinion.reasons.iter().map(|(reason, _)| reason.code).collect())
    })
}

fn put(state: &mut ClusterState, name: &str, parent: &str, deserved: Option<ResourceAmounts>) {
    put_queue(
        state,
        QueueRecord {
            parent: Arc::from(parent),
            deserved,
            ..queue(name, 1)
        },
    );
}

fn put_waiting_job(state: &mut ClusterState, queue: &str, cpu: i64, memory: i64) {
    let min = amounts(cpu, memory, -1);
    put_job(state, job(&format!("ns/{queue}"), queue, Some(min), JobPhase::Pending));
}

/// A root with two teams of one queue each, and a waiting job in either.
fn teams() -> ClusterState {
    let mut state = cluster_state(&[(8000, 8000, -1)]);
    put(&mut state, "root", "", None);
    for (team, leaf) in [("eng", "a"), ("sci", "b")] {
        put(&mut state, team, "root", Some(amounts(4000, 0, -1)));
        put(&mut state, leaf, team, Some(amounts(4000, 0, -1)));
        put_waiting_job(&mut state, leaf, 1000, 1000);
    }
    state
}

#[test]
fn a_queue_without_its_parent_is_a_problem_of_its_own() {
    let mut state = teams();
    put(&mut state, "lost", "gone", None);
    put_waiting_job(&mut state, "lost", 1000, 0);
    for queue in ["a", "b", "lost"] {
        assert_eq!(
            codes(&state, UPSTREAM, queue).unwrap(),
            ["QueueTreeNotReady"],
            "{queue}"
        );
    }
    assert!(codes(&state, Corrected, "a").unwrap().is_empty());
    let problem = codes(&state, Corrected, "lost").unwrap_err();
    assert_eq!(
        (problem.code.name(), &*problem.field),
        ("QUEUE_PARENT_UNKNOWN", "queues[lost].parent")
    );
    assert!(
        problem.message.contains("create it or set another parent"),
        "{}",
        problem.message
    );
    let mut rootless = teams();
    rootless.remove_queue("root");
    assert_eq!(codes(&rootless, UPSTREAM, "a").unwrap(), ["QueueTreeNotReady"]);
    assert!(
        codes(&rootless, Corrected, "a").unwrap().is_empty(),
        "the root need not be there"
    );
}

#[test]
fn a_job_in_an_inner_queue_is_a_problem_of_that_queue() {
    let mut state = teams();
    put_waiting_job(&mut state, "eng", 1000, 0);
    assert_eq!(codes(&state, UPSTREAM, "b").unwrap(), ["QueueTreeNotReady"]);
    assert!(codes(&state, Corrected, "b").unwrap().is_empty());
    assert_eq!(codes(&state, Corrected, "eng").unwrap(), ["QueueNotALeaf"]);
}

#[test]
fn a_root_that_limits_cpu_leaves_memory() {
    let mut state = teams();
    put_queue(
        &mut state,
        QueueRecord {
            capability: Some(amounts(1500, -1, -1)),
            ..queue("root", 1)
        },
    );
    assert_eq!(
        codes(&state, UPSTREAM, "a").unwrap(),
        ["QueueOverCapability"],
        "memory is 0"
    );
    assert!(codes(&state, Corrected, "a").unwrap().is_empty());
    put_waiting_job(&mut state, "a", 2000, 0);
    // The queue, its team and the root say so each; the reference looks no further than the first.
    assert_eq!(codes(&state, Corrected, "a").unwrap(), ["QueueOverCapability"; 3]);
    assert_eq!(codes(&state, UPSTREAM, "a").unwrap(), ["QueueOverCapability"]);
}

#[test]
fn a_closed_queue_above_takes_nothing() {
    let mut state = teams();
    put_queue(
        &mut state,
        QueueRecord {
            state: QueueState::Closed,
            parent: Arc::from("root"),
            ..queue("eng", 1)
        },
    );
    assert!(codes(&state, UPSTREAM, "a").unwrap().is_empty());
    assert_eq!(codes(&state, Corrected, "a").unwrap(), ["QueueNotOpen"]);
}

#[test]
fn shares_above_follow_each_task() {
    let mut state = teams();
    let waiting = task("ns/t", "ns/a", &amounts(1000, 0, -1), TaskStatus::Pending);
    put_task(&mut state, waiting.clone());
    let mut placed = waiting.clone();
    placed.status = TaskStatus::Allocated;
    let moved = PlacementEvent::Allocate(TaskTransition::new(&waiting, &placed, ""));
    for (compatibility, above) in [(UPSTREAM, 0.0), (Corrected, 0.25)] {
        let states = policy(compatibility).compute_plugin_states(&state);
        let mut own = states.get::<QueueCapacityState>(PLUGIN).unwrap().clone();
        let touched = own.apply(&PluginStateChange::Events(&state, &[moved])).unwrap();
        assert_eq!(touched, [Arc::from("eng"), Arc::from("root")]);
        let share = |queue: &str| own.accounts.account(queue).unwrap().share;
        assert_eq!((share("a"), share("eng")), (0.25, above));
    }
}

#[test]
fn reclaim_spares_its_own_queue_and_those_that_keep_theirs() {
    let mut state = teams();
    for (name, queue) in [("ns/a-0", "ns/a"), ("ns/b-0", "ns/b"), ("ns/b-1", "ns/b")] {
        put_task(
            &mut state,
            task(name, queue, &amounts(3000, 0, -1), TaskStatus::Running),
        );
    }
    put_task(
        &mut state,
        task("ns/a-1", "ns/a", &amounts(3000, 0, -1), TaskStatus::Running),
    );
    let stored = |name: &str| state.tasks().get(name).unwrap().record.clone();
    let candidates = ["ns/a-0", "ns/b-0", "ns/b-0", "ns/b-1"].map(stored);
    let candidates: Vec<&TaskRecord> = candidates.iter().collect();
    let preemptor = task("ns/a-2", "ns/a", &amounts(1000, 0, -1), TaskStatus::Pending);
    let goes = |state: &ClusterState, compatibility| {
        let query = VictimQuery {
            kind: VictimKind::Reclaim,
            preemptor: &preemptor,
            candidates: &candidates,
            eviction_order: EvictionOrder::default(),
        };
        ask(state, compatibility, |plugin, context| {
            plugin.ordered_victims(context, &query)
        })
    };
    assert_eq!(goes(&state, Corrected), Ok(Some(vec![1])));
    assert_eq!(
        goes(&state, UPSTREAM),
        Ok(Some(vec![0, 1])),
        "6,000 of 4,000, then 3,000"
    );
    let mut keeps = state.queues().get("b").unwrap().record.clone();
    keeps.reclaimable = Some(false);
    put_queue(&mut state, keeps);
    assert_eq!(goes(&state, Corrected), Ok(Some(Vec::new())));
}

/// Gives a queue of a cluster state other fields.
fn change_queue(state: &mut ClusterState, name: &str, change: impl FnOnce(&mut QueueRecord)) {
    let mut record = state.queues().get(name).unwrap().record.clone();
    change(&mut record);
    put_queue(state, record);
}

fn account(state: &ClusterState, compatibility: Compatibility, queue: &str) -> Arc<QueueTotals> {
    let states = policy(compatibility).compute_plugin_states(state);
    let own: &QueueCapacityState = states.get(PLUGIN).unwrap();
    Arc::clone(own.accounts.account(queue).unwrap())
}

#[test]
fn a_written_capability_of_nothing_is_a_limit() {
    let mut state = teams();
    change_queue(&mut state, "a", |queue| queue.capability = Some(amounts(0, -1, -1)));
    assert!(codes(&state, UPSTREAM, "a").unwrap().is_empty(), "its parent's");
    assert_eq!(codes(&state, Corrected, "a").unwrap(), ["QueueOverCapability"]);
    change_queue(&mut state, "a", |queue| queue.capability = None);
    change_queue(&mut state, "root", |queue| queue.capability = Some(amounts(-1, 0, -1)));
    assert!(codes(&state, UPSTREAM, "a").unwrap().is_empty(), "no limit");
    assert_eq!(codes(&state, Corrected, "a").unwrap(), ["QueueOverCapability"; 3]);
}

#[test]
fn a_queue_deserves_no_more_than_it_may_hold() {
    let mut state = teams();
    change_queue(&mut state, "a", |queue| queue.capability = Some(amounts(1000, -1, -1)));
    put_task(
        &mut state,
        task("ns/a-0", "ns/a", &amounts(1000, 0, -1), TaskStatus::Running),
    );
    for (compatibility, deserved, share) in [(UPSTREAM, 4000.0, 0.25), (Corrected, 1000.0, 1.0)] {
        let own = account(&state, compatibility, "a");
        assert_eq!((own.deserved.amount(ResourceId::CPU), own.share), (deserved, share));
    }
}

#[test]
fn a_preemptor_stays_within_the_limits_of_queues_above() {
    let mut state = teams();
    change_queue(&mut state, "eng", |queue| {
        queue.capability = Some(amounts(1000, -1, -1));
    });
    let preemptor = task("ns/a-0", "ns/a", &amounts(2000, 0, -1), TaskStatus::Pending);
    put_task(&mut state, preemptor.clone());
    // A capability of its own, as large as the cluster, so that only the limit above is short.
    let may = |compatibility| {
        ask(&state, compatibility, |plugin, context| {
            plugin.may_preempt(context, "a", &[&preemptor])
        })
    };
    assert_eq!(
        (may(Corrected), may(UPSTREAM)),
        (Ok(Some(false)), Ok(Some(false))),
        "a takes the limit over"
    );
    change_queue(&mut state, "eng", |queue| queue.capability = None);
    put(&mut state, "c", "eng", Some(amounts(4000, 0, -1)));
    put_waiting_job(&mut state, "c", 1000, 0);
    put_task(
        &mut state,
        task("ns/c-0", "ns/c", &amounts(3000, 0, -1), TaskStatus::Running),
    );
    change_queue(&mut state, "eng", |queue| {
        queue.capability = Some(amounts(4000, -1, -1));
    });
    let may = |compatibility| {
        ask(&state, compatibility, |plugin, context| {
            plugin.may_preempt(context, "a", &[&preemptor])
        })
    };
    assert_eq!(
        (may(Corrected), may(UPSTREAM)),
        (Ok(Some(false)), Ok(Some(true))),
        "3,000 + 2,000 of 4,000"
    );
}

#[test]
fn pods_do_not_tell_what_a_queue_deserves() {
    let mut state = teams();
    let mut pods = ResourceAmounts::default();
    pods.set(ResourceId::PODS, 10);
    change_queue(&mut state, "b", |queue| queue.deserved = Some(pods));
    put_task(
        &mut state,
        task("ns/b-0", "ns/b", &amounts(3000, 0, -1), TaskStatus::Running),
    );
    let preemptor = task("ns/a-0", "ns/a", &amounts(1000, 0, -1), TaskStatus::Pending);
    let candidate = state.tasks().get("ns/b-0").unwrap().record.clone();
    let goes = |compatibility| {
        let query = VictimQuery {
            kind: VictimKind::Reclaim,
            preemptor: &preemptor,
            candidates: &[&candidate],
            eviction_order: EvictionOrder::default(),
        };
        ask(&state, compatibility, |plugin, context| {
            plugin.ordered_victims(context, &query)
        })
    };
    assert_eq!(goes(UPSTREAM), Ok(Some(Vec::new())), "it deserves pods");
    assert_eq!(goes(Corrected), Ok(Some(vec![0])), "it deserves none of the cpu");
}
