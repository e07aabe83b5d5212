//! What goes beyond the plugin's design document: each behind a switch of its arguments.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::view;
use super::nodes::{cluster, policy, question};
use pumice::engine::decide::{self, ScoreQuestion};
use pumice::engine::model::View;
use pumice::engine::plugin::{VictimKind, VictimQuestion};
use pumice::engine::plugins::capacity_card::refusal::{
    EMPTY_CAPABILITY, INSUFFICIENT_CARD, PATH_INVALID, QUEUE_NOT_OPEN,
};
use pumice::engine::plugins::capacity_card::{CapacityState, Config, Move, Verdict};
use pumice::engine::policy::{Compatibility, CompileOptions, compile};

const HIERARCHY: Config = Config {
    hierarchy: true,
    mixed: false,
    unlimited: false,
    order_by_quota: false,
    victims: false,
    weight: 1.0,
};

/// Queues `(name, parent, quota)`, a node with eight `A` and one with eight `B`, and pending jobs `(queue, cards)`.
fn tree(queues: &[(&str, &str, &str)], jobs: &[(&str, &str)]) -> View {
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
    view(&json!({"nodes": [node("na", "A"), node("nb", "B")], "queues": queues, "jobs": jobs}))
}

fn ask(state: &mut CapacityState, view: &View, job: usize) -> Verdict {
    let record = &view.jobs().get(&format!("ns/j{job}")).unwrap().record;
    let verdict = state.vote_job(view, record).unwrap();
    if verdict.permitted() {
        state.reserve(view, record, &verdict).unwrap();
        state.keep(&record.name);
    }
    verdict
}

fn codes(verdict: &Verdict) -> Vec<&'static str> {
    verdict.refusals.iter().map(|refusal| refusal.reason.code).collect()
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
    let view = tree(&queues, &jobs);
    let mut state = CapacityState::of(&view, HIERARCHY, Compatibility::Corrected);
    assert!(ask(&mut state, &view, 0).permitted());
    let refused = ask(&mut state, &view, 1);
    assert_eq!(codes(&refused), [INSUFFICIENT_CARD]);
    let message = &refused.refusals[0].reason.message;
    assert!(
        message.starts_with("Queue <dept> has insufficient <A> quota: requested <2 cards>, total would be <4 cards>")
    );
    assert!(ask(&mut state, &view, 2).permitted());
    // `B` is no card of the department's quota; a queue without a quota of its own has what is above it.
    assert_eq!(codes(&ask(&mut state, &view, 3)), [INSUFFICIENT_CARD]);
    assert_eq!(codes(&ask(&mut state, &view, 4)), [INSUFFICIENT_CARD]);
    let inqueue = |queue: &str| state.account(queue).unwrap().inqueue.card_or_zero("A");
    assert_eq!(
        (inqueue("root"), inqueue("dept"), inqueue("x"), inqueue("y")),
        (3000, 3000, 2000, 1000)
    );
    let mut flat = CapacityState::of(&view, Config::default(), Compatibility::Corrected);
    assert!(
        (0..4)
            .filter(|job| *job != 2)
            .all(|job| ask(&mut flat, &view, job).permitted())
    );
    assert_eq!(codes(&ask(&mut flat, &view, 4)), [EMPTY_CAPABILITY]);
}

#[test]
fn what_tasks_hold_counts_along_the_path() {
    let queues = [
        ("dept", "", r#"{"A": 1}"#),
        ("x", "dept", r#"{"A": 2}"#),
        ("y", "dept", r#"{"A": 2}"#),
    ];
    let view = tree(&queues, &[("x", ""), ("y", "")]);
    let mut state = CapacityState::of(&view, HIERARCHY, Compatibility::Corrected);
    let task = |job: usize| &view.tasks().get(&format!("ns/j{job}/t")).unwrap().record;
    assert!(state.vote_task(&view, "y", task(1)).unwrap().permitted());
    state
        .follow(&view, task(0), Move::Allocate { node: "na", card: "" })
        .unwrap();
    let held = |state: &CapacityState, queue: &str| state.account(queue).unwrap().allocated.card_or_zero("A");
    assert_eq!(
        (held(&state, "dept"), held(&state, "x"), held(&state, "y")),
        (1000, 1000, 0)
    );
    let refused = state.vote_task(&view, "y", task(1)).unwrap();
    assert_eq!(codes(&refused), [INSUFFICIENT_CARD]);
    state.follow(&view, task(0), Move::Deallocate).unwrap();
    assert_eq!(held(&state, "dept"), 0);
    assert_eq!(
        state.vote_task(&view, "y", task(1)).unwrap().cards,
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
    let view = tree(&queues, &[("lost", one), ("a", one), ("below", one), ("good", one)]);
    let mut state = CapacityState::of(&view, HIERARCHY, Compatibility::Corrected);
    assert_eq!(codes(&ask(&mut state, &view, 0)), [PATH_INVALID]);
    assert_eq!(codes(&ask(&mut state, &view, 1)), [PATH_INVALID]);
    assert!(codes(&ask(&mut state, &view, 2)).contains(&QUEUE_NOT_OPEN));
    // `root` stands above all, whether or not it is a record.
    assert!(ask(&mut state, &view, 3).permitted());
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
    let view = tree(&queues, &jobs);
    let mut one = CapacityState::of(&view, Config::default(), Compatibility::Corrected);
    assert_eq!(codes(&ask(&mut one, &view, 0)), [INSUFFICIENT_CARD]);
    let mixed = Config {
        mixed: true,
        ..Config::default()
    };
    let mut mixed = CapacityState::of(&view, mixed, Compatibility::Corrected);
    assert!(ask(&mut mixed, &view, 0).permitted());
    assert!(ask(&mut mixed, &view, 1).permitted());
    // Four and one are five: all that there is.
    assert_eq!(codes(&ask(&mut mixed, &view, 2)), [INSUFFICIENT_CARD]);
    assert_eq!(codes(&ask(&mut mixed, &view, 3)), [INSUFFICIENT_CARD]);
}

#[test]
fn scores_leave_out_cards_that_the_queue_may_not_give() {
    let document = |switch: bool| {
        format!(
            "actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments:\n      nodeOrderByQuota: {switch}\n"
        )
    };
    let view = cluster(r#"{"A": 1, "B": 1}"#, &[("A", "Running", "na"), ("A|B", "Pending", "")]);
    let totals = |switch| {
        let question = ScoreQuestion {
            question: question(&view, &["ns/j/t1"]),
            with_filter: false,
            limit: None,
            with_parts: false,
        };
        let items = decide::score(&view, &policy(&document(switch)), &question).unwrap();
        items[0].as_ref().unwrap().answer.totals.clone()
    };
    assert_eq!(
        (totals(false), totals(true)),
        (vec![100.0, 50.0, 0.0], vec![0.0, 100.0, 0.0])
    );
}

#[test]
fn switches_have_no_effect_under_upstream_and_stand_in_the_effective_document() {
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
fn victims(view: &View, kind: VictimKind, preemptor: &str, candidates: &[&str]) -> Vec<bool> {
    let policy = policy(
        "actions: preempt\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {cardVictims: true, cardHierarchy: true}\n",
    );
    let derived = policy.derive(view);
    let task = |name: &&str| &view.tasks().get(name).unwrap().record;
    let plugin = policy.registered("capacity-card").unwrap().victims.clone().unwrap();
    let votes = plugin.victims(&VictimQuestion {
        kind,
        derived: &derived,
        preemptor: task(&preemptor),
        candidates: &candidates.iter().map(task).collect::<Vec<_>>(),
    });
    votes.unwrap().unwrap_or_default()
}

#[test]
fn preemption_over_cards_is_never_in_vain() {
    let tasks = [
        ("A", "Pending", ""),
        ("A", "Running", "na"),
        ("B", "Running", "nb"),
        ("", "Running", "none"),
        ("A", "Running", "na"),
    ];
    let candidates = ["ns/j/t1", "ns/j/t2", "ns/j/t3", "ns/j/t4"];
    let ask = |quota: &str| victims(&cluster(quota, &tasks), VictimKind::Preempt, "ns/j/t0", &candidates);
    // The quota of A is used up: who holds A may go, nobody else; other nodes have no A at all.
    assert_eq!(ask(r#"{"A": 2, "B": 8}"#), [true, false, false, true]);
    // Two are held of none: both would have to go, and still nothing could be given.
    assert_eq!(ask(r#"{"B": 8}"#), [false; 4]);
    // One too many is held: two must go, and two can.
    assert_eq!(ask(r#"{"A": 1, "B": 8}"#), [true, false, false, true]);
    // There is quota: the room on the node is all that is wanted.
    assert_eq!(ask(r#"{"A": 3, "B": 8}"#), [true, false, false, true]);
    // One of them alone frees one, and two are short.
    let view = cluster(r#"{"A": 1, "B": 8}"#, &tasks);
    assert_eq!(
        victims(&view, VictimKind::Preempt, "ns/j/t0", &candidates[..1]),
        [false]
    );
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
    let world = |own: &str| {
        view(&json!({
            "nodes": [node],
            "queues": [queue("own", own, true), queue("over", r#"{"A": 1}"#, true), queue("full", r#"{"A": 2}"#, true)],
            "jobs": [job("own", &["Pending"]), job("over", &["Running", "Running"]), job("full", &["Running", "Running"])],
        }))
    };
    let candidates = ["ns/full/t0", "ns/over/t0", "ns/over/t1"];
    let ask = |own: &str| victims(&world(own), VictimKind::Reclaim, "ns/own/t0", &candidates);
    // One holds two of the one that it deserves: one of these may go.
    assert_eq!(ask(r#"{"A": 1}"#), [false, true, false]);
    // Without quota for the task, nothing of others helps it.
    assert_eq!(ask(r#"{"B": 1}"#), [false; 3]);
}

#[test]
fn without_the_switch_the_plugin_has_no_say_in_victims() {
    let document = "actions: preempt\ntiers:\n- plugins:\n  - name: capacity-card\n";
    assert!(policy(document).registered("capacity-card").unwrap().victims.is_none());
}
