//! `pumice explain` where measurements, names and limits have to be exact.

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::Value;

use super::explain::{CARDS, PLAIN, card_job, card_node, card_queue, code, gang, sentence, server};
use super::{ends, json};
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, node, queue, task, task_on_node};

fn small_node() -> pb::Node {
    node("n-1", &[("cpu", "16"), ("memory", "64Gi")])
}

fn hints(report: &Value) -> String {
    report["verdict"]["hints"].to_string()
}

/// Job created at this second, with one task of this cpu.
fn aged(name: &str, queue: &str, second: i64, cpu: &str) -> (pb::Job, pb::Task) {
    let job = pb::Job {
        creation_time: Some(prost_types::Timestamp {
            seconds: second,
            nanos: 0,
        }),
        ..gang(name, queue, pb::JobPhase::Inqueue, 1)
    };
    (job, task(&format!("{name}-0"), name, &[("cpu", cpu)]))
}

#[test]
fn what_was_not_tried_is_not_claimed() {
    let pairs = (0..202).map(|at| aged(&format!("a/j-{at:03}"), "q", 10 + at, "10m"));
    let (jobs, tasks): (Vec<_>, Vec<_>) = pairs.unzip();
    let cluster = pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi"), ("pods", "400")])],
        queues: vec![queue("q")],
        jobs,
        tasks,
        ..pb::Cluster::default()
    };
    let server = server(PLAIN, cluster.clone());
    let report = json(&server, &["explain", "job", "a/j-201"]);
    assert_eq!(code(&report), "PLACEABLE");
    assert!(
        sentence(&report).ends_with("201 jobs of its queue are before it, and whether they leave enough was not tried"),
        "{}",
        sentence(&report)
    );
    assert_eq!(
        report["notes"][0],
        "201 jobs are before it; more than 200 are not placed first"
    );
    let report = json(&server, &["explain", "job", "a/j-200"]);
    assert!(
        sentence(&report).ends_with("200 jobs of its queue are before it, and leave enough"),
        "{}",
        sentence(&report)
    );
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.sessions = 0;
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    let report = json(&server, &["explain", "job", "a/j-001"]);
    assert!(
        sentence(&report).ends_with("and whether they leave enough was not tried"),
        "{}",
        sentence(&report)
    );
    assert_eq!(
        report["notes"][0],
        "the jobs before it were not placed first: no session was free"
    );
    assert_eq!(report["metadata"]["policy"], "default");
    assert_ne!(report["metadata"]["revision"], 0);
    assert_ne!(report["metadata"]["policyVersion"], 0);
}

#[test]
fn what_a_quota_lacks_counts_what_is_admitted_and_not_allocated() {
    let with_least = |name: &str, phase: pb::JobPhase, cpu: &str| pb::Job {
        min_resources: Some(amounts(&[("cpu", cpu)])),
        ..gang(name, "small", phase, 1)
    };
    let server = server(
        CARDS,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![small_node()],
            queues: vec![pb::Queue {
                capability: Some(amounts(&[("cpu", "8"), ("memory", "64Gi")])),
                state: pb::QueueState::Open.into(),
                ..queue("small")
            }],
            jobs: vec![
                with_least("a/runs", pb::JobPhase::Running, "1"),
                with_least("a/admitted", pb::JobPhase::Inqueue, "10"),
                with_least("a/asks", pb::JobPhase::Pending, "3"),
            ],
            tasks: vec![
                task_on_node(
                    task("a/runs-0", "a/runs", &[("cpu", "1")]),
                    pb::TaskStatus::Running,
                    "n-1",
                ),
                task("a/admitted-0", "a/admitted", &[("cpu", "10")]),
                task("a/asks-0", "a/asks", &[("cpu", "3")]),
            ],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/asks"]);
    assert_eq!(code(&report), "QUOTA");
    // 1 + 10 + 3 − 8.
    let hints = hints(&report);
    assert!(hints.contains("it fits when 6 cores of cpu are given back"), "{hints}");
    assert!(
        hints.contains("most is held by a/admitted (10 cores, not allocated yet), a/runs (1 core)"),
        "{hints}"
    );
}

#[test]
fn only_jobs_that_use_the_capacity_are_named() {
    let jobs = [
        aged("a/huge", "q", 5, "64"),
        aged("a/taker", "q", 10, "14"),
        aged("a/asker", "q", 20, "4"),
    ];
    let (jobs, tasks) = jobs.into_iter().unzip();
    let server = server(
        PLAIN,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![small_node()],
            queues: vec![queue("q")],
            jobs,
            tasks,
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/asker"]);
    assert_eq!(code(&report), "EARLIER_JOBS");
    assert!(
        sentence(&report).contains("but job a/taker is before it and will take it: "),
        "{}",
        sentence(&report)
    );
    assert!(hints(&report).contains("job a/taker is before it in its queue"));
    assert!(!hints(&report).contains("a/huge"));
    assert_eq!(report["gang"]["afterEarlierJobs"]["competingJobs"][0]["job"], "a/taker");
    assert_eq!(report["gang"]["afterEarlierJobs"]["competingJobCount"], 1);
}

#[test]
fn a_large_gang_of_cards_is_placed_as_place_places_it() {
    let with = |nodes: u32| {
        let member = |at: u32| pb::Task {
            annotations: [("volcano.sh/card.name".to_owned(), "H100".to_owned())].into(),
            ..task(
                &format!("a/big-{at:03}"),
                "a/big",
                &[("cpu", "1"), ("nvidia.com/gpu", "1")],
            )
        };
        pb::Cluster {
            nodes: (0..nodes).map(|at| card_node(&format!("n-{at:02}"), "8")).collect(),
            queues: vec![pb::Queue {
                capability: Some(amounts(&[("cpu", "1k"), ("memory", "1000Gi")])),
                ..card_queue("q", "{\"H100\": 500}")
            }],
            jobs: vec![gang("a/big", "q", pb::JobPhase::Inqueue, 500)],
            tasks: (0..500).map(member).collect(),
            ..pb::Cluster::default()
        }
    };
    let report = json(&server(CARDS, with(63)), &["explain", "job", "a/big"]);
    assert_eq!(code(&report), "PLACEABLE", "{}", sentence(&report));
    assert!(
        sentence(&report).contains("nodes take 500 of 500 waiting tasks now"),
        "{}",
        sentence(&report)
    );
    let report = json(&server(CARDS, with(62)), &["explain", "job", "a/big"]);
    assert_eq!(code(&report), "GANG", "{}", sentence(&report));
    assert!(
        sentence(&report).contains("500 tasks must start together, and only 496 of the 500 tried find a place now"),
        "{}",
        sentence(&report)
    );
}

#[test]
fn a_gang_that_never_fits_does_not_wait_for_what_is_released() {
    let leaving = task_on_node(task("a/old-0", "", &[("cpu", "7")]), pb::TaskStatus::Releasing, "n-1");
    let member = |at: u32| task(&format!("a/gang-{at}"), "a/gang", &[("cpu", "4")]);
    let with = |min_member: i32| pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![node("n-1", &[("cpu", "10"), ("memory", "64Gi")])],
        queues: vec![queue("q")],
        jobs: vec![gang("a/gang", "q", pb::JobPhase::Inqueue, min_member)],
        tasks: vec![leaving.clone(), member(0), member(1), member(2)],
        ..pb::Cluster::default()
    };
    let report = json(&server(PLAIN, with(3)), &["explain", "job", "a/gang"]);
    assert_eq!(code(&report), "GANG");
    assert_eq!(
        sentence(&report),
        "job a/gang waits: 3 tasks must start together, and there is room for only 2 even when what is being released is gone"
    );
    assert!(hints(&report).contains("a minMember of at most 2 would let it start"));
    let report = json(&server(PLAIN, with(2)), &["explain", "job", "a/gang"]);
    assert_eq!(code(&report), "RELEASING");
}

#[test]
fn pods_of_several_jobs_are_rejected() {
    let server = server(PLAIN, pb::Cluster::default());
    let pod = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}-0\n  namespace: a\n  annotations: {{scheduling.k8s.io/group-name: {name}}}\nspec:\n  containers:\n  - name: c\n    resources: {{requests: {{cpu: 1}}}}\n"
        )
    };
    let file = std::env::temp_dir().join(format!("pumice-explain-two-{}.yaml", std::process::id()));
    std::fs::write(&file, format!("{}---\n{}", pod("bert"), pod("gpt"))).unwrap();
    let said = ends(Some(&server), &["explain", "-f", file.to_str().unwrap()], 1);
    std::fs::remove_file(&file).unwrap();
    assert!(said.contains("it has pods of job a/bert and of job a/gpt"), "{said}");
    assert!(said.contains("one is explained at a time"), "{said}");
}

#[test]
fn a_task_without_its_group_and_finished_tasks_are_reported() {
    let ended = |name: &str, status| task_on_node(task(name, "", &[("cpu", "1")]), status, "n-1");
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![small_node()],
            tasks: vec![
                task("a/lost", "a/nogroup", &[("cpu", "1")]),
                ended("a/broke", pb::TaskStatus::Failed),
                ended("a/leaves", pb::TaskStatus::Releasing),
                ended("a/done", pb::TaskStatus::Succeeded),
            ],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "task", "a/lost"]);
    assert_eq!(code(&report), "JOB_UNKNOWN");
    assert_eq!(sentence(&report), "task a/lost waits: there is no PodGroup a/nogroup");
    let said = |name: &str| sentence(&json(&server, &["explain", "task", name])).to_owned();
    assert_eq!(said("a/broke"), "task a/broke does not wait: it failed");
    assert_eq!(said("a/leaves"), "task a/leaves does not wait: it is ending");
    assert_eq!(said("a/done"), "task a/done does not wait: it ended");
}

#[test]
fn an_unreadable_quota_is_reported_first() {
    let (job, its_task) = card_job("a/asker", pb::JobPhase::Pending, "4");
    let server = server(
        CARDS,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![card_node("n-1", "8")],
            queues: vec![card_queue("research", "{\"H100\": eight}")],
            jobs: vec![job],
            tasks: vec![its_task],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/asker"]);
    assert_eq!(code(&report), "QUOTA");
    let first = report["verdict"]["hints"][0].as_str().unwrap();
    assert!(
        first.starts_with("the quota of queue research counts as empty: "),
        "{first}"
    );
    assert!(!hints(&report).contains("never fits"));
}

#[test]
fn unknown_names_come_with_the_one_that_was_meant() {
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
            queues: vec![queue("q")],
            jobs: vec![gang("train/bert", "q", pb::JobPhase::Inqueue, 1)],
            tasks: vec![task("train/bert-0", "train/bert", &[("cpu", "1")])],
            ..pb::Cluster::default()
        },
    );
    let said = ends(Some(&server), &["explain", "job", "train/bret"], 1);
    assert!(said.contains("there is no job `train/bret`"), "{said}");
    assert!(said.contains("did you mean `train/bert`?"), "{said}");
    assert!(ends(Some(&server), &["explain", "job", "prod/bert"], 1).contains("did you mean `train/bert`?"));
    assert!(
        ends(Some(&server), &["explain", "job", "train/bert-0"], 1)
            .contains("there is a task of that name: pumice explain task train/bert-0")
    );
    ends(Some(&server), &["explain", "job"], 2);
    ends(Some(&server), &["explain"], 2);
}

#[test]
fn a_node_that_is_full_and_tainted_counts_as_tainted() {
    let policy = "actions: allocate\ntiers: [{plugins: [{name: predicates}, {name: binpack}]}]\n";
    let tainted = |name: &str| pb::Node {
        taints: vec![pb::Taint {
            key: "team".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        }],
        ..node(name, &[("cpu", "8"), ("memory", "64Gi"), ("pods", "10")])
    };
    let full = |node: &str| {
        task_on_node(
            task(&format!("a/{node}"), "", &[("cpu", "7")]),
            pb::TaskStatus::Running,
            node,
        )
    };
    let server = server(
        policy,
        pb::Cluster {
            nodes: vec![
                tainted("n-1"),
                tainted("n-2"),
                node("n-3", &[("cpu", "8"), ("memory", "64Gi"), ("pods", "10")]),
            ],
            queues: vec![queue("q")],
            jobs: vec![gang("a/w", "q", pb::JobPhase::Inqueue, 1)],
            tasks: vec![full("n-1"), full("n-3"), task("a/w-0", "a/w", &[("cpu", "4")])],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "task", "a/w-0"]);
    let rejections = report["taskClasses"][0]["rejections"].as_array().unwrap();
    let mut found: Vec<(&str, u64)> = rejections
        .iter()
        .map(|own| (own["reason"]["code"].as_str().unwrap(), own["count"].as_u64().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [("InsufficientResource", 1), ("UntoleratedTaint", 2)],
        "{report:#}"
    );
}
