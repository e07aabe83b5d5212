//! Extensions beyond the plugin's design document, each behind a switch of its arguments.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::{TaskMove, cluster_state, move_task};
use super::nodes::{cluster, cluster_of_jobs, policy, task_query};
use pumice_engine::decide::{self, ScoreQuery};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin::{EvictionOrder, PluginContext, VictimKind, VictimQuery};
use pumice_engine::plugins::capacity_card::rejection::{
    EMPTY_CAPABILITY, INSUFFICIENT_CARD, PATH_INVALID, QUEUE_NOT_OPEN,
};
use pumice_engine::plugins::capacity_card::{CapacityConfig, CapacityState, CardVotes as _, QuotaVerdict};
use pumice_engine::policy::{CompileOptions, compile};

const HIERARCHY: CapacityConfig = CapacityConfig {
    hierarchy: true,
    mixed_cards: false,
    unlimited_cpu_memory: false,
    order_by_quota: false,
    victims: false,
    node_order_weight: 1.0,
    over_commit_milli: 1000,
};

/// Queues `(name, parent, quota)`, a node with eight `A` and one with eight `B`, and pending jobs `(queue, cards)`.
fn tree(queues: &[(&str, &str, &str)], jobs: &[(&str, &str)]) -> ClusterState {
    let node = |name: &str, product: &str| json!({"name": name, "labels": {"nvidia.com/gpu.product": product}, "allocatable": {"nvidia.com/gpu": "8"}});
    let queue = |(name, parent, quota): &(&str, &str, &str)| {
        json!({"name": name, "parent": parent, "annotations": {"volcano.sh/card.quota": quota},
            "state": if *quota == "closed" { "Closed" } else { "Open" }})
    };
    let job = |(number, (queue, request)): (usize, &(&str, &str))| {
        let task = json!({"name": "t", "annotations": {"volcano.sh/card.name": "A"}, "status": "Pending",
            "requests": {"nvidia.com/gpu": "1"}});
        let tasks = if request.is_empty() { json!([task]) } else { json!([]) };
        json!({"uid": format!("ns/j{number}"), "queue": queue, "phase": "Pending", "min_member": 1,
            "annotations": {"volcano.sh/card.request": request}, "min_resources": {}, "tasks": tasks})
    };
    let (queues, jobs): (Vec<Json>, Vec<Json>) = (
        queues.iter().map(queue).collect(),
        jobs.iter().enumerate().map(job).collect(),
    );
    cluster_state(&json!({"nodes": [node("na", "A"), node("nb", "B")], "queues": queues, "jobs": jobs}))
}

fn ask(state: &mut CapacityState, cluster_state: &ClusterState, job: usize) -> QuotaVerdict {
    let record = &cluster_state.jobs().get(&format!("ns/j{job}")).unwrap().record;
    let verdict = state.permit(cluster_state, record).unwrap();
    if verdict.is_permitted() {
        state.confirm_permit(cluster_state, &record.name);
    }
    verdict
}

fn codes(verdict: &QuotaVerdict) -> Vec<&'static str> {
    verdict
        .rejections
        .iter()
        .map(|rejection| rejection.reason.code)
        .collect()
}

#[test]
fn quotas_hold_for_all_queues_below() {
    let queues = [
        ("root", "", ""),
        ("dept", "root", r#"{"A": 3}"#),
        ("x", "dept", r#"{"A": 2, "B": 2}"#),
        ("y", "dept", r#"{"A": 2}"#),
        ("free", "dept", ""),
    ];
    let jobs = [
        ("x", r#"{"A": 2}"#),
        ("y", r#"{"A": 2}"#),
        ("y", r#"{"A": 1}"#),
        ("x", r#"{"B": 1}"#),
        ("free", r#"{"A": 1}"#),
    ];
    let cluster_state = tree(&queues, &jobs);
    let mut state = CapacityState::of(&cluster_state, HIERARCHY);
    assert!(ask(&mut state, &cluster_state, 0).is_permitted());
    let refused = ask(&mut state, &cluster_state, 1);
    assert_eq!(codes(&refused), [INSUFFICIENT_CARD]);
    let message = &refused.rejections[0].reason.message;
    assert!(
        message.starts_with("Queue <dept> has insufficient <A> quota: requested <2 cards>, total would be <4 cards>")
    );
    assert!(ask(&mut state, &cluster_state, 2).is_permitted());
    // `B` is not in the department's quota; a queue without a quota of its own has that of its parent.
    assert_eq!(codes(&ask(&mut state, &cluster_state, 3)), [INSUFFICIENT_CARD]);
    assert_eq!(codes(&ask(&mut state, &cluster_state, 4)), [INSUFFICIENT_CARD]);
    let inqueue = |queue: &str| state.account(queue).unwrap().inqueue.card_or_zero("A");
    assert_eq!(
        (inqueue("root"), inqueue("dept"), inqueue("x"), inqueue("y")),
        (3000, 3000, 2000, 1000)
    );
    let mut flat = CapacityState::of(&cluster_state, CapacityConfig::default());
    assert!(
        (0..4)
            .filter(|job| *job != 2)
            .all(|job| ask(&mut flat, &cluster_state, job).is_permitted())
    );
    assert_eq!(codes(&ask(&mut flat, &cluster_state, 4)), [EMPTY_CAPABILITY]);
}

#[test]
fn what_tasks_hold_counts_along_the_path() {
    let queues = [
        ("dept", "", r#"{"A": 1}"#),
        ("x", "dept", r#"{"A": 2}"#),
        ("y", "dept", r#"{"A": 2}"#),
    ];
    let cluster_state = tree(&queues, &[("x", ""), ("y", "")]);
    let mut state = CapacityState::of(&cluster_state, HIERARCHY);
    let task = |job: usize| &cluster_state.tasks().get(&format!("ns/j{job}/t")).unwrap().record;
    assert!(state.vote_task(&cluster_state, "y", task(1)).unwrap().is_permitted());
    move_task(&mut state, &cluster_state, task(0), TaskMove::Allocate("na")).unwrap();
    let held = |state: &CapacityState, queue: &str| state.account(queue).unwrap().allocated.card_or_zero("A");
    assert_eq!(
        (held(&state, "dept"), held(&state, "x"), held(&state, "y")),
        (1000, 1000, 0)
    );
    let refused = state.vote_task(&cluster_state, "y", task(1)).unwrap();
    assert_eq!(codes(&refused), [INSUFFICIENT_CARD]);
    move_task(&mut state, &cluster_state, task(0), TaskMove::Deallocate).unwrap();
    assert_eq!(held(&state, "dept"), 0);
    assert_eq!(
        state.vote_task(&cluster_state, "y", task(1)).unwrap().cards,
        [(Arc::from("A"), 1)]
    );
}

#[test]
fn paths_that_lead_nowhere_admit_nothing() {
    let queues = [
        ("lost", "gone", r#"{"A": 2}"#),
        ("a", "b", r#"{"A": 2}"#),
        ("b", "a", r#"{"A": 2}"#),
        ("shut", "", "closed"),
        ("below", "shut", r#"{"A": 2}"#),
        ("good", "root", r#"{"A": 2}"#),
    ];
    let one = r#"{"A": 1}"#;
    let cluster_state = tree(&queues, &[("lost", one), ("a", one), ("below", one), ("good", one)]);
    let mut state = CapacityState::of(&cluster_state, HIERARCHY);
    assert_eq!(codes(&ask(&mut state, &cluster_state, 0)), [PATH_INVALID]);
    assert_eq!(codes(&ask(&mut state, &cluster_state, 1)), [PATH_INVALID]);
    assert!(codes(&ask(&mut state, &cluster_state, 2)).contains(&QUEUE_NOT_OPEN));
    // `root` is above all queues, whether or not it has a record.
    assert!(ask(&mut state, &cluster_state, 3).is_permitted());
}

#[test]
fn tasks_of_one_job_may_use_different_cards() {
    let queues = [("q", "", r#"{"A": 3, "B": 2}"#)];
    let jobs = [
        ("q", r#"{"A|B": 4}"#),
        ("q", r#"{"B": 1}"#),
        ("q", r#"{"A|B": 1}"#),
        ("q", r#"{"A": 1}"#),
    ];
    let cluster_state = tree(&queues, &jobs);
    let mut one = CapacityState::of(&cluster_state, CapacityConfig::default());
    assert_eq!(codes(&ask(&mut one, &cluster_state, 0)), [INSUFFICIENT_CARD]);
    let mixed = CapacityConfig {
        mixed_cards: true,
        ..CapacityConfig::default()
    };
    let mut mixed = CapacityState::of(&cluster_state, mixed);
    assert!(ask(&mut mixed, &cluster_state, 0).is_permitted());
    assert!(ask(&mut mixed, &cluster_state, 1).is_permitted());
    // Four and one are five: the whole capacity.
    assert_eq!(codes(&ask(&mut mixed, &cluster_state, 2)), [INSUFFICIENT_CARD]);
    assert_eq!(codes(&ask(&mut mixed, &cluster_state, 3)), [INSUFFICIENT_CARD]);
}

#[test]
fn scores_leave_out_cards_that_the_queue_may_not_give() {
    let document = |switch: bool| {
        format!(
            "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments:\n      nodeOrderByQuota: {switch}\n"
        )
    };
    let cluster_state = cluster(r#"{"A": 1, "B": 1}"#, &[("A", "Running", "na"), ("A|B", "Pending", "")]);
    let totals = |switch| {
        let query = ScoreQuery {
            node_query: task_query(&cluster_state, &["ns/j/t1"]),
            with_filter: false,
            limit: None,
            with_parts: false,
            ahead: 0,
        };
        let items = decide::score(&cluster_state, &policy(&document(switch)), &query).unwrap();
        items[0].as_ref().unwrap().result.totals.clone()
    };
    assert_eq!(
        (totals(false), totals(true)),
        (vec![100.0, 50.0, 0.0], vec![0.0, 100.0, 0.0])
    );
}

#[test]
fn switches_have_no_effect_under_upstream_but_appear_in_the_effective_document() {
    for name in ["cardHierarchy", "mixedCards", "nodeOrderByQuota", "cardVictims"] {
        let document = |compatibility: &str| {
            format!(
                "actions: allocate\npumice:\n  compatibility: {compatibility}\ntiers:\n- plugins:\n  - name: capacity-card\n    \
                 arguments:\n      {name}: true\n"
            )
        };
        let compiled = |compatibility: &str| compile(&document(compatibility), &CompileOptions::default()).unwrap();
        let corrected = compiled("corrected");
        assert!(corrected.effective_document.contains(&format!("{name}: true")));
        assert_eq!(corrected.report.warnings().count(), 0);
        let upstream = compiled("upstream");
        assert!(!upstream.effective_document.contains(name));
        assert_eq!(upstream.report.warnings().count(), 1);
    }
}

/// Votes on candidates in order, under `cardVictims`; an empty vote: the plugin abstains.
fn victims(cluster_state: &ClusterState, kind: VictimKind, preemptor: &str, candidates: &[&str]) -> Vec<bool> {
    let policy = policy(
        "actions: preempt\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {cardVictims: true, cardHierarchy: true}\n",
    );
    let derived = policy.compute_plugin_states(cluster_state);
    let task = |name: &&str| &cluster_state.tasks().get(name).unwrap().record;
    let plugin = policy.registered("capacity-card").unwrap().victims.clone().unwrap();
    let context = PluginContext {
        cluster_state,
        plugin_states: &derived,
        now: None,
        after_release: false,
    };
    let query = VictimQuery {
        kind,
        preemptor: task(&preemptor),
        candidates: &candidates.iter().map(task).collect::<Vec<_>>(),
        eviction_order: EvictionOrder::default(),
    };
    let votes = plugin.victims(context, &query);
    votes.unwrap().unwrap_or_default()
}

#[test]
fn preemption_over_cards_is_never_in_vain() {
    let running = [
        ("A", "Running", "na"),
        ("B", "Running", "nb"),
        ("", "Running", "none"),
        ("A", "Running", "na"),
    ];
    let candidates = ["ns/j/t0", "ns/j/t1", "ns/j/t2", "ns/j/t3"];
    let two_jobs = |quota: &str| cluster_of_jobs(quota, &[("ns/j", &running), ("ns/new", &[("A", "Pending", "")])]);
    let ask = |quota: &str| victims(&two_jobs(quota), VictimKind::Preempt, "ns/new/t0", &candidates);
    // The quota of A is used up: only tasks with A may be evicted; other nodes have no A at all.
    assert_eq!(ask(r#"{"A": 2, "B": 8}"#), [true, false, false, true]);
    // Two are used without any quota: both would have to go, and still nothing could be given.
    assert_eq!(ask(r#"{"B": 8}"#), [false; 4]);
    // One too many is used: two must go, and two can.
    assert_eq!(ask(r#"{"A": 1, "B": 8}"#), [true, false, false, true]);
    // There is quota: only capacity on the node is missing.
    assert_eq!(ask(r#"{"A": 3, "B": 8}"#), [true, false, false, true]);
    // One alone frees one card, and two are missing.
    let cluster_state = two_jobs(r#"{"A": 1, "B": 8}"#);
    assert_eq!(
        victims(&cluster_state, VictimKind::Preempt, "ns/new/t0", &candidates[..1]),
        [false]
    );
}

#[test]
fn neither_the_own_job_nor_in_reclaim_the_own_queue_has_victims() {
    let (running, waiting) = (("A", "Running", "na"), ("A", "Pending", ""));
    let cluster_state = cluster_of_jobs(
        r#"{"A": 2}"#,
        &[("ns/j", &[running]), ("ns/new", &[waiting, running, running])],
    );
    let ask = |kind| {
        victims(
            &cluster_state,
            kind,
            "ns/new/t0",
            &["ns/j/t0", "ns/new/t1", "ns/new/t2"],
        )
    };
    // Two must go of three that run, and only one is another job's.
    assert_eq!(ask(VictimKind::Preempt), [false; 3]);
    let cluster_state = cluster_of_jobs(
        r#"{"A": 2}"#,
        &[("ns/j", &[running, running]), ("ns/new", &[waiting, running])],
    );
    let ask = |kind| victims(&cluster_state, kind, "ns/new/t0", &["ns/new/t1", "ns/j/t0", "ns/j/t1"]);
    assert_eq!(ask(VictimKind::Preempt), [false, true, true]);
    assert_eq!(ask(VictimKind::Reclaim), [false; 3]);
}

#[test]
fn reclaim_over_cards_leaves_queues_what_they_deserve() {
    let node = json!({"name": "na", "labels": {"nvidia.com/gpu.product": "A"}, "allocatable": {"nvidia.com/gpu": "8"}});
    let queue = |name: &str, quota: &str, reclaimable: bool| json!({"name": name, "reclaimable": reclaimable, "annotations": {"volcano.sh/card.quota": quota}});
    let job = |queue: &str, tasks: &[&str]| {
        let task = |(number, status): (usize, &&str)| {
            json!({"name": format!("t{number}"), "annotations": {"volcano.sh/card.name": "A"}, "status": status,
                "node": if *status == "Running" { "na" } else { "" }, "requests": {"nvidia.com/gpu": "1"}})
        };
        let tasks: Vec<Json> = tasks.iter().enumerate().map(task).collect();
        json!({"uid": format!("ns/{queue}"), "queue": queue, "phase": "Running", "min_member": 1, "annotations": {},
            "tasks": tasks})
    };
    let snapshot = |own: &str| {
        cluster_state(&json!({
            "nodes": [node],
            "queues": [queue("own", own, true), queue("over", r#"{"A": 1}"#, true), queue("full", r#"{"A": 2}"#, true)],
            "jobs": [job("own", &["Pending"]), job("over", &["Running", "Running"]), job("full", &["Running", "Running"])],
        }))
    };
    let candidates = ["ns/full/t0", "ns/over/t0", "ns/over/t1"];
    let ask = |own: &str| victims(&snapshot(own), VictimKind::Reclaim, "ns/own/t0", &candidates);
    // One queue uses two and deserves one: one of its tasks may go.
    assert_eq!(ask(r#"{"A": 1}"#), [false, true, false]);
    // Without quota for the task, no eviction of other tasks helps it.
    assert_eq!(ask(r#"{"B": 1}"#), [false; 3]);
}

#[test]
fn without_the_switch_the_plugin_has_no_say_in_victims() {
    let document = "actions: preempt\ntiers:\n- plugins:\n  - name: capacity-card\n";
    assert!(policy(document).registered("capacity-card").unwrap().victims.is_none());
}
