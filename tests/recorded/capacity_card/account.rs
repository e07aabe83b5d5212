//! One account of what a job still needs, under `corrected`: what is admitted is kept back once, on cards that it can use,
//! and placed there.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::{MIXED, ONE, cluster_state};
use super::nodes::policy;
use pumice_engine::cycle::{SchedulingCycle, SessionChange};
use pumice_engine::decide::{self, OrderQuery};
use pumice_engine::model::{ClusterState, JobRecord, Reservation};
use pumice_engine::plugin::PluginAccounts as _;
use pumice_engine::plugins::capacity_card::rejection::{INSUFFICIENT_CARD, INSUFFICIENT_CPU, REQUEST_FAILED};
use pumice_engine::plugins::capacity_card::{
    CapacityConfig, CapacityState, CardVotes as _, PLUGIN, QuotaAmounts, QuotaVerdict,
};
use pumice_engine::policy::{CompileOptions, compile};

const UNLIMITED: CapacityConfig = CapacityConfig {
    unlimited_cpu_memory: true,
    ..ONE
};
pub(super) const TREE: CapacityConfig = CapacityConfig {
    hierarchy: true,
    ..MIXED
};

/// A node with this number of cards of a product; cpu 64.
pub(super) fn node(name: &str, product: &str, cards: u32) -> Json {
    json!({"name": name, "labels": {"nvidia.com/gpu.product": product},
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": cards.to_string()}})
}

pub(super) fn queue(name: &str, quota: &str) -> Json {
    json!({"name": name, "annotations": {"volcano.sh/card.quota": quota}})
}

/// A task with a core and one card, of a name.
pub(super) fn task(name: &str, card: &str, status: &str, node: &str) -> Json {
    let annotations = if card.is_empty() {
        json!({})
    } else {
        json!({"volcano.sh/card.name": card})
    };
    json!({"name": name, "annotations": annotations, "status": status, "node": node,
        "requests": {"cpu": "1", "nvidia.com/gpu": "1"}})
}

/// A job of tasks `(card, status, node)` in queue `q`.
pub(super) fn job(name: &str, phase: &str, min_member: usize, tasks: &[(&str, &str, &str)]) -> Json {
    let tasks = tasks.iter().enumerate();
    let tasks = tasks.map(|(number, (card, status, node))| task(&format!("t{number}"), card, status, node));
    json!({"uid": format!("ns/{name}"), "queue": "q", "phase": phase, "min_member": min_member, "annotations": {},
        "tasks": tasks.collect::<Vec<Json>>()})
}

pub(super) fn with(mut job: Json, field: &str, value: Json) -> Json {
    job[field] = value;
    job
}

pub(super) struct Asked {
    pub(super) cluster_state: ClusterState,
    pub(super) state: CapacityState,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "tests put their clusters together where they ask"
)]
pub(super) fn open(config: CapacityConfig, nodes: Vec<Json>, queues: Vec<Json>, jobs: Vec<Json>) -> Asked {
    let cluster_state = cluster_state(&json!({"nodes": nodes, "queues": queues, "jobs": jobs}));
    let state = CapacityState::of(&cluster_state, config);
    Asked { cluster_state, state }
}

impl Asked {
    pub(super) fn record(&self, job: &str) -> JobRecord {
        self.cluster_state
            .jobs()
            .get(&format!("ns/{job}"))
            .unwrap()
            .record
            .clone()
    }

    pub(super) fn ask(&self, job: &str) -> QuotaVerdict {
        self.state.vote_job(&self.cluster_state, &self.record(job)).unwrap()
    }

    /// Asks, and keeps the permit.
    pub(super) fn admit(&mut self, job: &str) -> bool {
        let record = self.record(job);
        let verdict = self.state.permit(&self.cluster_state, &record).unwrap();
        if verdict.is_permitted() {
            self.state.confirm_permit(&self.cluster_state, &record.name);
        }
        verdict.is_permitted()
    }

    pub(super) fn task(&self, name: &str) -> QuotaVerdict {
        let task = self
            .cluster_state
            .tasks()
            .get(&format!("ns/{name}"))
            .unwrap()
            .record
            .clone();
        self.state.vote_task(&self.cluster_state, "q", &task).unwrap()
    }

    pub(super) fn inqueue(&self) -> QuotaAmounts {
        self.state.account("q").unwrap().inqueue.clone()
    }
}

pub(super) fn codes(verdict: &QuotaVerdict) -> Vec<&'static str> {
    verdict
        .rejections
        .iter()
        .map(|rejection| rejection.reason.code)
        .collect()
}

pub(super) fn cards(counts: &QuotaAmounts) -> Vec<(&str, i128)> {
    counts.cards().map(|(card, milli)| (&**card, milli / 1000)).collect()
}

#[test]
fn a_card_that_no_node_has_is_refused_and_takes_nothing_of_another_card() {
    let four = [("A100", "Pending", ""); 4];
    let nodes = || vec![node("h", "H100", 4)];
    let quota = || vec![queue("q", r#"{"H100": 4, "A100": 4}"#)];
    let good = || job("good", "Pending", 4, &[("H100", "Pending", ""); 4]);
    for job in [
        job("lost", "Pending", 4, &four),
        with(
            job("lost", "Pending", 4, &four),
            "min_resources",
            json!({"nvidia.com/gpu": "4"}),
        ),
        with(
            with(
                job("lost", "Pending", 4, &[]),
                "annotations",
                json!({"volcano.sh/card.request": r#"{"A100": 4}"#}),
            ),
            "min_resources",
            json!({"cpu": "4", "nvidia.com/gpu": "4"}),
        ),
    ] {
        let mut asked = open(ONE, nodes(), quota(), vec![job.clone(), good()]);
        let refused = asked.ask("lost");
        assert_eq!(codes(&refused), [REQUEST_FAILED], "{job}");
        assert!(refused.rejections[0].reason.message.contains("A100"), "{refused:?}");
        assert!(asked.admit("good"));
        // Admitted before its nodes went away: its own card is kept back, no other.
        let mut asked = open(
            ONE,
            nodes(),
            quota(),
            vec![with(job, "phase", json!("Inqueue")), good()],
        );
        assert_eq!(cards(&asked.inqueue()), [("A100", 4)]);
        assert!(asked.admit("good"));
    }
    // What runs on a node that is not there counts by the name that it has.
    let running = job("lost", "Running", 1, &[("A100", "Running", "gone")]);
    let asked = open(ONE, nodes(), quota(), vec![running]);
    assert_eq!(cards(&asked.state.account("q").unwrap().allocated), [("A100", 1)]);
}

#[test]
fn what_finished_tasks_needed_is_reserved_no_more() {
    let tasks = [
        ("A", "Succeeded", "na"),
        ("A", "Succeeded", "na"),
        ("A", "Succeeded", "na"),
        ("A", "Running", "na"),
    ];
    let run = |tasks: &[(&str, &str, &str)], given: Json| {
        let job = with(job("j", "Running", 4, tasks), "min_resources", given);
        open(
            ONE,
            vec![node("na", "A", 8)],
            vec![queue("q", r#"{"A": 8}"#)],
            vec![job],
        )
    };
    let min = || json!({"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "4"});
    assert_eq!(run(&tasks, min()).inqueue().cpu, 0);
    let half = [tasks[0], tasks[1], ("A", "Pending", ""), tasks[3]];
    assert_eq!(
        (run(&half, min()).inqueue().cpu, cards(&run(&half, min()).inqueue())),
        (1000, vec![("A", 1)])
    );
    // Tasks of it are still to come: the annotation is less what has ended, too.
    let annotations = json!({"volcano.sh/card.request": r#"{"A": 4}"#});
    let fewer = with(
        with(
            job("j", "Running", 4, &[tasks[0], tasks[1], tasks[3]]),
            "min_resources",
            min(),
        ),
        "annotations",
        annotations,
    );
    let asked = open(
        ONE,
        vec![node("na", "A", 8)],
        vec![queue("q", r#"{"A": 8}"#)],
        vec![fewer],
    );
    assert_eq!((asked.inqueue().cpu, cards(&asked.inqueue())), (1000, vec![("A", 1)]));
}

#[test]
fn the_pre_check_reads_the_request_of_the_job_whether_it_has_tasks_or_not() {
    let annotations = json!({"volcano.sh/card.request": r#"{"A": 8}"#});
    for tasks in [vec![], vec![("A", "Pending", ""); 4]] {
        let job = with(job("j", "Pending", 4, &tasks), "annotations", annotations.clone());
        let asked = open(
            ONE,
            vec![node("na", "A", 8)],
            vec![queue("q", r#"{"A": 5}"#)],
            vec![job],
        );
        assert_eq!(codes(&asked.ask("j")), [INSUFFICIENT_CARD], "{tasks:?}");
    }
    // Nor does it say less than what the tasks need.
    let annotations = json!({"volcano.sh/card.request": r#"{"A": 1}"#});
    let job = with(
        job("j", "Pending", 4, &[("A", "Pending", ""); 4]),
        "annotations",
        annotations,
    );
    let asked = open(
        ONE,
        vec![node("na", "A", 8)],
        vec![queue("q", r#"{"A": 3}"#)],
        vec![job],
    );
    assert_eq!(codes(&asked.ask("j")), [INSUFFICIENT_CARD]);
}

#[test]
fn what_a_queue_is_guaranteed_is_withheld_from_others() {
    let guaranteed = with(queue("a", ""), "guarantee", json!({"cpu": "50"}));
    let cores = |name: &str, cores: u32| {
        let task = json!({"name": "t", "status": "Pending", "requests": {"cpu": cores.to_string()}});
        with(
            with(job(name, "Pending", 1, &[]), "tasks", json!([task])),
            "min_resources",
            json!({"cpu": cores.to_string()}),
        )
    };
    let queue = with(queue("q", ""), "capability", json!({"cpu": "64"}));
    let asked = open(
        ONE,
        vec![node("n", "A", 1)],
        vec![guaranteed, queue],
        vec![cores("small", 14), cores("large", 15)],
    );
    assert!(asked.ask("small").is_permitted() && asked.task("small/t").is_permitted());
    for refused in [asked.ask("large"), asked.task("large/t")] {
        assert_eq!(codes(&refused), [INSUFFICIENT_CPU]);
        let message = &refused.rejections[0].reason.message;
        assert!(message.contains("capability is <14 cores>; the rest of the cluster is guaranteed to other queues"));
    }
    assert_eq!(asked.task("small/t").headroom, Some(1));
    // Along a tree a guarantee counts once, at the top of it.
    let below = |name: &str, parent: &str, cpu: &str| {
        let annotations = json!({"volcano.sh/card.quota": r#"{"A": 1}"#});
        json!({"name": name, "parent": parent, "guarantee": {"cpu": cpu}, "annotations": annotations})
    };
    let queues = vec![
        below("dept", "root", "50"),
        below("x", "dept", "25"),
        below("y", "dept", "25"),
        below("q", "root", "0"),
    ];
    let asked = open(
        TREE,
        vec![node("n", "A", 1)],
        queues,
        vec![cores("small", 14), cores("large", 15)],
    );
    assert!(asked.ask("small").is_permitted() && !asked.ask("large").is_permitted());
    let most = |queue: &str| asked.state.account(queue).unwrap().limits.cpu_most;
    assert_eq!((most("dept"), most("x"), most("q")), (None, Some(39_000), Some(14_000)));
}

#[test]
fn two_plugins_that_keep_quotas_are_named() {
    let document = |other: &str, compatibility: &str| {
        format!(
            "actions: allocate\npumice:\n  compatibility: {compatibility}\ntiers:\n- plugins:\n  - name: capacity-card\n- plugins:\n  - name: {other}\n"
        )
    };
    let found = |other: &str, compatibility: &str| {
        let compiled = compile(&document(other, compatibility), &CompileOptions::default()).unwrap();
        compiled
            .report
            .warnings()
            .map(|diagnostic| (diagnostic.code.name(), diagnostic.line))
            .collect::<Vec<_>>()
    };
    for other in ["capacity", "proportion"] {
        assert_eq!(found(other, "corrected"), [("QUOTAS_CONFLICT", 8)]);
        assert_eq!(found(other, "upstream"), []);
    }
    assert_eq!(found("gang", "corrected"), []);
}

#[test]
fn cpu_of_a_card_job_does_not_count_whatever_became_of_its_tasks() {
    let min = json!({"cpu": "4"});
    let inqueue = |job: Json| {
        let job = with(job, "min_resources", min.clone());
        let asked = open(
            UNLIMITED,
            vec![node("na", "A", 8)],
            vec![queue("q", r#"{"A": 8}"#)],
            vec![job],
        );
        asked.inqueue().cpu
    };
    assert_eq!(
        inqueue(job(
            "j",
            "Running",
            2,
            &[("A", "Succeeded", "na"), ("A", "Succeeded", "na")]
        )),
        0
    );
    let mut gated = job("j", "Inqueue", 1, &[("A", "Pending", "")]);
    gated["tasks"][0]["scheduling_gated"] = json!(true);
    assert_eq!(inqueue(gated), 0);
}

#[test]
fn a_fulfilled_reservation_does_not_come_back_when_its_tasks_succeed() {
    let held = |phase: &str, tasks: &[(&str, &str, &str)], promised: i128| {
        let job = job("j", phase, 4, tasks);
        let mut cluster_state = cluster_state(
            &json!({"nodes": [node("na", "A", 8)], "queues": [queue("q", r#"{"A": 8}"#)], "jobs": [job]}),
        );
        let amounts = [("cpu", promised), ("memory", 0), ("A", promised)];
        cluster_state.put_reservation(Arc::new(Reservation {
            job: "ns/j".into(),
            queue: "q".into(),
            amounts: amounts
                .iter()
                .map(|(name, amount)| (Arc::from(*name), *amount))
                .collect(),
            ..Reservation::default()
        }));
        let state = CapacityState::of(&cluster_state, ONE);
        let row = cluster_state.reservations().get("ns/j").unwrap();
        let inqueue = state.account("q").unwrap().inqueue.clone();
        let rest = state.remaining_reservation(row).unwrap();
        let rest = rest
            .iter()
            .find(|(name, _)| **name == *"A")
            .map_or(0.0, |(_, rest)| *rest);
        assert_eq!(rest, inqueue.card_or_zero("A") as f64);
        (inqueue.cpu, inqueue.card_or_zero("A"))
    };
    let (run, done, wait) = (("A", "Running", "na"), ("A", "Succeeded", "na"), ("A", "Pending", ""));
    for phase in ["Pending", "Running"] {
        assert_eq!(held(phase, &[wait; 4], 4000), (4000, 4000));
        assert_eq!(held(phase, &[run, run, wait, wait], 4000), (2000, 2000));
        assert_eq!(held(phase, &[done, done, run, run], 4000), (0, 0));
        assert_eq!(held(phase, &[done; 4], 4000), (0, 0));
        // Two had ended before the rest was promised.
        assert_eq!(held(phase, &[done, done, wait, wait], 2000), (2000, 2000));
        assert_eq!(held(phase, &[done, done, done, wait], 2000), (1000, 1000));
        // Records of its tasks are still to come.
        assert_eq!(held(phase, &[], 4000), (4000, 4000));
    }
}

#[test]
fn the_request_of_an_account_follows_the_changes_of_a_session() {
    let tasks = [("A|B", "Pending", ""), ("A|B", "Running", "na")];
    let asked = open(
        ONE,
        vec![node("na", "A", 8)],
        vec![queue("q", r#"{"A": 8}"#)],
        vec![job("j", "Running", 1, &tasks)],
    );
    let policy = policy("actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n");
    let mut cycle = SchedulingCycle::new(
        asked.cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(&asked.cluster_state),
    );
    let mut step = |change: Option<SessionChange>| {
        if let Some(change) = change {
            cycle.apply(&[change]).unwrap();
        }
        let state: &CapacityState = cycle.plugin_states().get(PLUGIN).unwrap();
        let request = &state.account("q").unwrap().request;
        (
            request.cpu,
            cards(request).iter().map(|(_, amount)| *amount).sum::<i128>(),
        )
    };
    assert_eq!(step(None), (2000, 2));
    assert_eq!(step(Some(SessionChange::Evict("ns/j/t1".into()))), (1000, 1));
    assert_eq!(step(Some(SessionChange::Unevict("ns/j/t1".into()))), (2000, 2));
}

#[test]
fn upstream_order_says_where_the_reference_panics() {
    let queues = |priority: i64| {
        vec![
            queue("q", r#"{"A": 1}"#),
            with(queue("none", "{}"), "priority", json!(priority)),
            with(queue("high", "{}"), "priority", json!(9)),
        ]
    };
    let order = |priority: i64, plugins: &[&str]| {
        let cluster_state =
            cluster_state(&json!({"nodes": [], "queues": queues(priority), "jobs": [job("j", "Pending", 1, &[])]}));
        let policy = policy(
            "actions: allocate\npumice:\n  compatibility: upstream\ntiers:\n- plugins:\n  - name: capacity-card\n",
        );
        let query = OrderQuery {
            now: None,
            queues: Some(Vec::new()),
            plugins: plugins.iter().map(|name| Arc::from(*name)).collect(),
            ..OrderQuery::default()
        };
        let result = decide::order(
            &cluster_state,
            &policy,
            &policy.compute_plugin_states(&cluster_state),
            &query,
        )
        .unwrap();
        let shown = |rank: decide::OrderRank| {
            (
                rank.name.to_string(),
                rank.keys.err().map(|problem| problem.code.name()),
            )
        };
        result.queues.into_iter().map(shown).collect::<Vec<_>>()
    };
    let ok = |name: &str| (name.to_owned(), None);
    assert_eq!(
        order(0, &[]),
        [ok("high"), ok("q"), ("none".to_owned(), Some("REFERENCE_PANICS"))]
    );
    assert_eq!(order(1, &[]), [ok("high"), ok("none"), ok("q")]);
    // By name, too, a queue that the reference cannot compare has no keys.
    assert_eq!(
        order(0, &["capacity-card"]),
        [ok("high"), ("none".to_owned(), Some("REFERENCE_PANICS")), ok("q")]
    );
    assert_eq!(order(1, &["capacity-card"]), [ok("high"), ok("none"), ok("q")]);
}
