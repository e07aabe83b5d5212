//! `pumice explain`: the first sentence alone tells each cause from the others.

use pumice::server::pb;
use serde_json::Value;

use super::{ends, json, written};
use crate::support::records::{amounts, delta, full_sync, job, node, queue, task, task_on_node};
use crate::support::{EmbeddedServer, TestDirectory};

pub(super) const CARDS: &str = "actions: \"enqueue, allocate\"\ntiers:\n- plugins:\n  - name: capacity-card\n  - name: drf\n  - name: resource-strategy-fit\n";
pub(super) const PLAIN: &str = "actions: \"allocate\"\ntiers:\n- plugins:\n  - name: drf\n  - name: binpack\n";

pub(super) fn server(policy: &str, cluster: pb::Cluster) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let reload = pb::ReloadPolicyRequest {
        document: policy.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(reload).unwrap();
    let outcome = server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    assert_eq!(outcome.refused, Vec::new());
    server
}

/// Queue with this quota of cards and no other relevant bound.
pub(super) fn card_queue(name: &str, quota: &str) -> pb::Queue {
    pb::Queue {
        annotations: [("volcano.sh/card.quota".to_owned(), quota.to_owned())].into(),
        capability: Some(amounts(&[("cpu", "100"), ("memory", "1000Gi")])),
        state: pb::QueueState::Open.into(),
        ..queue(name)
    }
}

pub(super) fn card_node(name: &str, cards: &str) -> pb::Node {
    let label = |name: &str, value: &str| (format!("nvidia.com/gpu.{name}"), value.to_owned());
    pb::Node {
        labels: [
            label("product", "H100"),
            label("count", cards),
            label("memory", "81920"),
        ]
        .into(),
        ..node(name, &[("cpu", "64"), ("memory", "512Gi"), ("nvidia.com/gpu", cards)])
    }
}

pub(super) fn gang(name: &str, queue: &str, phase: pb::JobPhase, min_member: i32) -> pb::Job {
    pb::Job {
        phase: phase.into(),
        min_member,
        ..job(name, queue)
    }
}

/// Job that wants `cards` H100 cards, all in one task.
pub(super) fn card_job(name: &str, phase: pb::JobPhase, cards: &str) -> (pb::Job, pb::Task) {
    let request = format!("{{\"H100\": {cards}}}");
    let job = pb::Job {
        annotations: [("volcano.sh/card.request".to_owned(), request)].into(),
        min_resources: Some(amounts(&[("cpu", "1"), ("nvidia.com/gpu", cards)])),
        ..gang(name, "research", phase, 1)
    };
    let task = pb::Task {
        annotations: [("volcano.sh/card.name".to_owned(), "H100".to_owned())].into(),
        limits: Some(amounts(&[("cpu", "1"), ("nvidia.com/gpu", cards)])),
        ..task(&format!("{name}-0"), name, &[("cpu", "1"), ("nvidia.com/gpu", cards)])
    };
    (job, task)
}

pub(super) fn sentence(report: &Value) -> &str {
    report["verdict"]["summary"].as_str().unwrap()
}

pub(super) fn code(report: &Value) -> &str {
    report["verdict"]["code"].as_str().unwrap()
}

/// First line of the output.
fn first_line(server: &EmbeddedServer, arguments: &[&str]) -> String {
    ends(Some(server), arguments, 0).lines().next().unwrap().to_owned()
}

#[test]
fn a_card_quota_is_reported_with_its_headroom() {
    let (holder, held) = card_job("a/holder", pb::JobPhase::Running, "6");
    let (asker, its_task) = card_job("a/asker", pb::JobPhase::Pending, "4");
    let server = server(
        CARDS,
        pb::Cluster {
            nodes: vec![card_node("n-1", "8"), card_node("n-2", "8")],
            queues: vec![card_queue("research", "{\"H100\": 8}")],
            jobs: vec![holder, asker],
            tasks: vec![task_on_node(held, pb::TaskStatus::Running, "n-1"), its_task],
            ..pb::Cluster::default()
        },
    );
    let said = ends(Some(&server), &["explain", "job", "a/asker"], 0);
    assert!(
        said.starts_with("job a/asker waits: queue research has 2 of 8 H100 cards left, and it asks for 4\n"),
        "{said}"
    );
    assert!(said.contains("most is held by a/holder (6 cards)"), "{said}");
    assert!(said.contains("capacity-card InsufficientScalarQuota"), "{said}");
    let report = json(&server, &["explain", "job", "asker"]);
    assert_eq!(code(&report), "QUOTA");
    assert_eq!(report["admission"]["votes"][0]["vote"], -1);
    assert_eq!(report["admission"]["reasons"][0]["measurements"][2]["value"], 8.0);
    assert_eq!(report["queue"]["holders"][0]["job"], "a/holder");
    let h100 = &report["queue"]["account"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["resource"] == "H100")
        .unwrap();
    assert_eq!((&h100["allocated"], &h100["capability"]), (&6.0.into(), &8.0.into()));
    // The running job does not wait.
    let running = json(&server, &["explain", "job", "a/holder"]);
    assert_eq!(code(&running), "RUNNING");
    assert_eq!(running["verdict"]["waiting"], false);
    assert_eq!(
        sentence(&running),
        "job a/holder does not wait: its one task has a place on n-1"
    );
    assert_eq!(
        sentence(&json(&server, &["explain", "task", "a/holder-0"])),
        "task a/holder-0 does not wait: it has a place on n-1"
    );
}

#[test]
fn a_cpu_quota_is_also_reported_for_an_enqueued_job() {
    let small = pb::Queue {
        capability: Some(amounts(&[("cpu", "8"), ("memory", "64Gi")])),
        state: pb::QueueState::Open.into(),
        ..queue("small")
    };
    let holder = task_on_node(task("a/h-0", "a/h", &[("cpu", "6")]), pb::TaskStatus::Running, "n-1");
    let server = server(
        CARDS,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "64"), ("memory", "64Gi")])],
            queues: vec![small],
            jobs: vec![
                gang("a/h", "small", pb::JobPhase::Running, 1),
                gang("a/w", "small", pb::JobPhase::Inqueue, 2),
            ],
            tasks: vec![
                holder,
                task("a/w-0", "a/w", &[("cpu", "4")]),
                task("a/w-1", "a/w", &[("cpu", "4")]),
            ],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/w"]);
    assert_eq!(
        sentence(&report),
        "job a/w waits: queue small has 2 of 8 cpu cores left, and each of its tasks asks for 4"
    );
    assert_eq!(code(&report), "QUOTA");
    // The job is enqueued, so its own admission is no longer evaluated.
    assert!(report["admission"].is_null());
    assert_eq!(report["taskClasses"][0]["admission"]["permitted"], false);
    assert_eq!(report["gang"]["placeable"], 0);
}

#[test]
fn nodes_that_lack_cpu_are_counted_and_the_nearest_is_named() {
    let mut nodes: Vec<pb::Node> = (0..9)
        .map(|at| node(&format!("n-{at}"), &[("cpu", "16"), ("memory", "64Gi")]))
        .collect();
    nodes.push(pb::Node {
        ready: Some(false),
        ..node("n-down", &[("cpu", "64"), ("memory", "64Gi")])
    });
    let used = task_on_node(task("a/r-0", "", &[("cpu", "20")]), pb::TaskStatus::Running, "n-big");
    nodes.push(node("n-big", &[("cpu", "48"), ("memory", "64Gi")]));
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes,
            queues: vec![queue("q")],
            jobs: vec![gang("a/w", "q", pb::JobPhase::Inqueue, 1)],
            tasks: vec![used, task("a/w-0", "a/w", &[("cpu", "32")])],
            ..pb::Cluster::default()
        },
    );
    let said = first_line(&server, &["explain", "job", "a/w"]);
    assert!(
        said.starts_with("job a/w waits: 0 of 11 nodes take its tasks (cpu 32): 9 lack cpu (need 32 cores"),
        "{said}"
    );
    let report = json(&server, &["explain", "job", "a/w"]);
    assert_eq!(code(&report), "NO_NODE");
    let class = &report["taskClasses"][0];
    assert_eq!((class["fitNow"].as_u64(), class["nodes"].as_u64()), (Some(0), Some(11)));
    // 48 − 20: the only node that is large enough.
    assert_eq!(class["nearestNodes"][0]["node"], "n-big");
    assert_eq!(class["nearestNodes"][0]["shortages"][0]["idle"], 28.0);
    let counts: Vec<(u64, &str, bool)> = class["rejections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let reason = &one["reason"];
            let (code, may) = (
                reason["code"].as_str().unwrap(),
                reason["preemptionMayHelp"].as_bool().unwrap(),
            );
            (one["count"].as_u64().unwrap(), code, may)
        })
        .collect();
    assert_eq!(
        counts,
        [
            (9, "InsufficientResource", false),
            (1, "NodeNotReady", false),
            (1, "InsufficientResource", false)
        ]
    );
    let hints = report["verdict"]["hints"].to_string();
    assert!(
        hints.contains("asking for at most 28 cores of cpu it would have room on n-big"),
        "{hints}"
    );
    // The task without a job is nobody's victim, and the policy has no action that evicts.
    assert!(!hints.contains("preemption"), "{hints}");
}

#[test]
fn scheduling_gates_are_reported() {
    let gated = |name: &str| pb::Task {
        gated: true,
        ..task(name, "a/w", &[("cpu", "1")])
    };
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
            queues: vec![queue("q")],
            jobs: vec![gang("a/w", "q", pb::JobPhase::Inqueue, 2)],
            tasks: vec![gated("a/w-0"), gated("a/w-1"), task("a/w-2", "a/w", &[("cpu", "1")])],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/w"]);
    assert_eq!(code(&report), "GATED");
    assert_eq!(
        sentence(&report),
        "job a/w waits: 2 of its 3 waiting tasks have a scheduling gate"
    );
}

#[test]
fn rejected_records_are_reported_with_their_field() {
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
            queues: vec![queue("q"), queue("r")],
            jobs: vec![
                gang("a/w", "q", pb::JobPhase::Inqueue, 1),
                gang("a/v", "r", pb::JobPhase::Inqueue, 1),
                gang("a/u", "nowhere", pb::JobPhase::Inqueue, 1),
            ],
            tasks: vec![
                task("a/w-0", "a/w", &[("cpu", "1")]),
                task("a/v-0", "a/v", &[("cpu", "1")]),
                task("a/u-0", "a/u", &[("cpu", "1")]),
            ],
            ..pb::Cluster::default()
        },
    );
    let bad = pb::Cluster {
        queues: vec![pb::Queue {
            capability: Some(amounts(&[("cpu", "many")])),
            ..queue("r")
        }],
        tasks: vec![task("a/w-0", "a/w", &[("cpu", "1x")])],
        ..pb::Cluster::default()
    };
    assert_eq!(server.wire.apply_batch(delta("test", 2, bad)).unwrap().refused.len(), 2);
    let report = json(&server, &["explain", "job", "a/w"]);
    assert_eq!(code(&report), "RECORD_INVALID");
    assert!(
        sentence(&report).starts_with("job a/w waits: the newest record of task a/w-0 was refused: "),
        "{}",
        sentence(&report)
    );
    assert!(sentence(&report).contains("requests"), "{}", sentence(&report));
    let report = json(&server, &["explain", "job", "a/v"]);
    assert_eq!(code(&report), "QUEUE_INVALID");
    assert!(sentence(&report).contains("capability"), "{}", sentence(&report));
    let report = json(&server, &["explain", "task", "a/u-0"]);
    assert_eq!(code(&report), "QUEUE_UNKNOWN");
    assert_eq!(sentence(&report), "task a/u-0 waits: there is no queue nowhere");
}

#[test]
fn jobs_ahead_are_distinguished_from_none_ahead() {
    let cluster = |first: i32| pb::Cluster {
        nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
        queues: vec![queue("q")],
        jobs: vec![
            pb::Job {
                creation_time: Some(prost_types::Timestamp { seconds: 10, nanos: 0 }),
                ..gang("a/older", "q", pb::JobPhase::Inqueue, first)
            },
            pb::Job {
                creation_time: Some(prost_types::Timestamp { seconds: 20, nanos: 0 }),
                ..gang("a/younger", "q", pb::JobPhase::Inqueue, 1)
            },
        ],
        tasks: vec![
            task("a/older-0", "a/older", &[("cpu", "8")]),
            task("a/older-1", "a/older", &[("cpu", "8")]),
            task("a/younger-0", "a/younger", &[("cpu", "4")]),
        ],
        ..pb::Cluster::default()
    };
    let both = server(PLAIN, cluster(2));
    let report = json(&both, &["explain", "job", "a/younger"]);
    assert_eq!(code(&report), "EARLIER_JOBS");
    assert!(
        sentence(&report).starts_with(
            "job a/younger waits: alone it would find a place now, but job a/older is before it and will take it"
        ),
        "{}",
        sentence(&report)
    );
    assert_eq!(report["order"]["jobPosition"], 2);
    assert_eq!(report["order"]["jobsAhead"][0], "a/older");
    assert_eq!(report["gang"]["afterEarlierJobs"]["jobsPlaced"], 1);
    assert_eq!(report["gang"]["afterEarlierJobs"]["placeable"], 0);
    let first = json(&both, &["explain", "job", "a/older"]);
    assert_eq!(code(&first), "PLACEABLE");
    assert_eq!(
        sentence(&first),
        "Pumice finds no reason that keeps job a/older: nodes take 2 of 2 waiting tasks now, best on n-1"
    );
    assert_eq!(first["taskClasses"][0]["bestNodes"][0]["parts"][0]["name"], "binpack");
    // The trial leaves nothing behind.
    assert_eq!(
        both.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks[0]
            .task
            .as_ref()
            .unwrap()
            .node,
        ""
    );
    // A job that needs more than the cluster has never gets in the way.
    let passed = server(PLAIN, cluster(3));
    let report = json(&passed, &["explain", "job", "a/older"]);
    assert_eq!(code(&report), "TOO_FEW_TASKS");
    assert_eq!(
        sentence(&report),
        "job a/older waits: it starts with 3 tasks, and only 2 are known"
    );
    let report = json(&passed, &["explain", "job", "a/younger"]);
    assert_eq!(code(&report), "PLACEABLE");
    assert_eq!(report["gang"]["afterEarlierJobs"]["jobsSkipped"], 1);
}

#[test]
fn missing_free_capacity_and_capacity_being_released_are_distinguished() {
    let leaving = task_on_node(task("a/old-0", "", &[("cpu", "8")]), pb::TaskStatus::Releasing, "n-1");
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
            queues: vec![queue("q")],
            jobs: vec![
                gang("a/gang", "q", pb::JobPhase::Inqueue, 3),
                gang("a/big", "q", pb::JobPhase::Inqueue, 1),
                gang("a/part", "q", pb::JobPhase::Running, 1),
                gang("a/done", "q", pb::JobPhase::Completed, 1),
            ],
            tasks: vec![
                leaving,
                task("a/gang-0", "a/gang", &[("cpu", "3")]),
                task("a/gang-1", "a/gang", &[("cpu", "3")]),
                task("a/gang-2", "a/gang", &[("cpu", "3")]),
                task("a/big-0", "a/big", &[("cpu", "12")]),
                task_on_node(
                    task("a/part-0", "a/part", &[("cpu", "1")]),
                    pb::TaskStatus::Running,
                    "n-1",
                ),
                task("a/part-1", "a/part", &[("cpu", "64")]),
                task_on_node(
                    task("a/done-0", "a/done", &[("cpu", "1")]),
                    pb::TaskStatus::Succeeded,
                    "n-1",
                ),
            ],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/gang"]);
    assert_eq!(code(&report), "RELEASING");
    assert_eq!(
        sentence(&report),
        "job a/gang waits: 3 tasks must start together; 2 find a place now, and 3 once what is being released is gone"
    );
    let report = json(&server, &["explain", "job", "a/big"]);
    assert_eq!(code(&report), "RELEASING");
    assert_eq!(report["taskClasses"][0]["fitLater"], 1);
    let report = json(&server, &["explain", "job", "a/part"]);
    assert_eq!(code(&report), "NO_NODE");
    assert!(
        sentence(&report).starts_with("job a/part runs with 1 task, and one more waits: 0 of 1 node"),
        "{}",
        sentence(&report)
    );
    let report = json(&server, &["explain", "job", "a/done"]);
    assert_eq!(
        (code(&report), sentence(&report)),
        ("COMPLETED", "job a/done does not wait: it ended")
    );
}

#[test]
fn a_pod_in_a_file_is_explained_as_if_it_waited() {
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
            ..pb::Cluster::default()
        },
    );
    let pod = |cpu: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop}}\nspec:\n  containers:\n  - name: c\n    resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}\n"
        )
    };
    let file = std::env::temp_dir().join(format!("pumice-explain-{}.yaml", std::process::id()));
    let path = file.to_str().unwrap();
    std::fs::write(&file, pod(4)).unwrap();
    let report = json(&server, &["explain", "-f", path]);
    assert_eq!(
        sentence(&report),
        "Pumice finds no reason that keeps task shop/web: a node takes it now, best on n-1"
    );
    std::fs::write(&file, pod(40)).unwrap();
    let report = json(&server, &["explain", "-f", path]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code(&report), "NO_NODE");
    assert!(
        sentence(&report).contains("1 lacks cpu (need 40 cores, it has 16 cores idle"),
        "{}",
        sentence(&report)
    );
}

/// Pod without a PodGroup that asks for four cores.
const BARE: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  schedulerName: volcano\n  containers:\n  - name: c\n    resources: {requests: {cpu: 4, memory: 1Gi}}\n";

#[test]
fn a_pod_without_a_pod_group_gets_one_verdict_from_all_commands() {
    let policy = "actions: \"enqueue, allocate\"\ntiers:\n- plugins: [{name: gang}]\n- plugins: [{name: proportion}, {name: predicates}, {name: nodeorder}]\n";
    let folder = TestDirectory::named("explain-bare");
    let file = written(&folder, "pod.yaml", BARE);
    for (capability, verdict, exit_code) in [("8", "PLACEABLE", 0), ("2", "QUOTA", 1)] {
        let default = pb::Queue {
            capability: Some(amounts(&[("cpu", capability)])),
            state: pb::QueueState::Open.into(),
            ..queue("default")
        };
        let server = server(
            policy,
            pb::Cluster {
                nodes: vec![node("n-1", &[("cpu", "16"), ("memory", "64Gi")])],
                queues: vec![default],
                tasks: vec![task("shop/web", "", &[("cpu", "4"), ("memory", "1Gi")])],
                ..pb::Cluster::default()
            },
        );
        for asked in [["explain", "task", "shop/web"], ["explain", "-f", &file]] {
            let report = json(&server, &asked);
            assert_eq!(code(&report), verdict, "{capability}: {report:#}");
        }
        ends(Some(&server), &["place", "-f", &file], exit_code);
    }
}
