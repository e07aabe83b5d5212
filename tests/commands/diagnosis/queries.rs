//! `filter`, `score`, `place`, `capacity` and `explain` by the same rules: closed queues, exit codes, names, widths, `--with`.

use std::process::{Command, Output};

use pumice::server::pb;
use serde_json::Value;

use super::explain::{CARDS, PLAIN, card_job, card_node, card_queue, code, gang, sentence, server};
use super::{ends, json, written};
use crate::support::EmbeddedServer;
use crate::support::TestDirectory;
use crate::support::process::{err, out, pumice};
use crate::support::records::{amounts, node, queue, task, task_on_node};

const GPU_SHAPE: &str = "1 gpu + 1 cpu";

fn small_node(name: &str) -> pb::Node {
    node(name, &[("cpu", "16"), ("memory", "64Gi")])
}

/// A job of one task with 2 cores in a queue.
fn waiting_job(name: &str, queue: &str, phase: pb::JobPhase) -> (pb::Job, pb::Task) {
    (
        gang(name, queue, phase, 1),
        task(&format!("{name}-0"), name, &[("cpu", "2")]),
    )
}

fn node_file(name: &str, cpu: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus:\n  allocatable: {{cpu: \"{cpu}\", memory: 256Gi, pods: \"110\"}}\n"
    )
}

#[test]
fn a_closed_queue_takes_nothing_new_whoever_asks() {
    for policy in [PLAIN, CARDS] {
        for (state, word) in [(pb::QueueState::Closed, "closed"), (pb::QueueState::Closing, "closing")] {
            let closed = pb::Queue {
                capability: Some(amounts(&[("cpu", "100"), ("memory", "1000Gi")])),
                state: state.into(),
                ..queue("shut")
            };
            let (pending, its_task) = waiting_job("a/new", "shut", pb::JobPhase::Pending);
            let (inqueue, other_task) = waiting_job("a/enqueued", "shut", pb::JobPhase::Inqueue);
            let cluster = pb::Cluster {
                namespaces: Vec::new(),
                nodes: vec![small_node("n-1")],
                queues: vec![closed],
                jobs: vec![pending.clone(), inqueue],
                tasks: vec![its_task, other_task],
                ..pb::Cluster::default()
            };
            let server = server(policy, cluster);
            for job in ["a/new", "a/enqueued"] {
                let report = json(&server, &["explain", "job", job]);
                assert_eq!(code(&report), "QUEUE_CLOSED", "{policy}");
                assert_eq!(
                    sentence(&report),
                    format!("job {job} waits: queue shut is {word}, and takes nothing new")
                );
            }
            let said = ends(Some(&server), &["place", "--shape", "1 cpu", "--queue", "shut"], 1);
            assert!(said.contains("Queue <shut> is not open"), "{policy}: {said}");
            assert!(said.contains("open the queue, or use another one"), "{said}");
            let said = ends(Some(&server), &["capacity", "--shape", "1 cpu"], 1);
            assert!(said.contains("Queue <shut> is not open"), "{policy}: {said}");
            let admitted = server
                .wire
                .admit(pb::AdmitRequest {
                    items: vec![pb::AdmitSubject {
                        subject: Some(pb::admit_subject::Subject::Job(pending.clone())),
                        ..pb::AdmitSubject::default()
                    }],
                    ..pb::AdmitRequest::default()
                })
                .unwrap();
            let item = &admitted.result.unwrap().items[0];
            assert!(!item.permitted);
            assert_eq!(item.reasons[0].code, "QueueNotOpen", "{:?}", item.reasons);
        }
    }
}

#[test]
fn a_simulation_places_nothing_in_a_closed_queue() {
    let folder = TestDirectory::named("closed-queue");
    let queue = |state: &str| {
        format!(
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: q}}\nstatus: {{state: {state}}}\n---\n{}---\n\
             apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {{name: g, namespace: a}}\nspec: {{queue: q, minMember: 1}}\n---\n\
             apiVersion: v1\nkind: Pod\nmetadata:\n  name: g-0\n  namespace: a\n  annotations: {{scheduling.k8s.io/group-name: g}}\nspec:\n  \
             schedulerName: volcano\n  containers:\n  - name: c\n    resources: {{requests: {{cpu: 1}}}}\n",
            node_file("n-1", 16)
        )
    };
    let placed = |state: &str| {
        let file = written(&folder, &format!("{state}.yaml"), &queue(state));
        let output = pumice(None, &["simulate", &file, "--policy", "pack", "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let report: Value = serde_json::from_str(&out(&output)).unwrap();
        report["policies"][0]["tasks"]["placed"].as_u64()
    };
    assert_eq!((placed("Open"), placed("Closed")), (Some(1), Some(0)));
}

#[test]
fn a_negative_result_ends_with_exit_code_1_and_a_remedy() {
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: vec![small_node("n-1"), small_node("n-2")],
            queues: vec![queue("q")],
            ..pb::Cluster::default()
        },
    );
    for output in ["table", "json"] {
        for arguments in [
            &["filter", "--cpu", "64"][..],
            &["score", "--cpu", "64"],
            &["place", "--shape", "2 x 64 cpu", "--queue", "q"],
            &["capacity", "--shape", "64 cpu"],
        ] {
            let said = ends(Some(&server), &[arguments, &["-o", output]].concat(), 1);
            assert!(said.contains("refused: "), "{arguments:?}: {said}");
            if output == "table" && arguments[0] != "score" {
                assert!(said.contains("request less, or add nodes"), "{arguments:?}: {said}");
            }
        }
    }
    for arguments in [
        &["filter", "--cpu", "4"][..],
        &["score", "--cpu", "4"],
        &["place", "--shape", "2 x 4 cpu", "--queue", "q"],
        &["capacity", "--shape", "4 cpu"],
    ] {
        ends(Some(&server), arguments, 0);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one list of commands")]
fn gpu_means_the_same_resource_everywhere_and_slips_are_pointed_out() {
    let server = server(
        PLAIN,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![small_node("cpu-1"), card_node("gpu-1", "8")],
            queues: vec![queue("research")],
            jobs: vec![gang("train/bert", "research", pb::JobPhase::Inqueue, 1)],
            tasks: vec![task("train/bert-0", "train/bert", &[("cpu", "1")])],
            ..pb::Cluster::default()
        },
    );
    let scored = json(&server, &["score", "--cpu", "1", "--request", "gpu=1"]);
    assert_eq!(
        scored["result"]["items"][0]["nodes"]["names"],
        serde_json::json!(["gpu-1"])
    );
    assert!(ends(Some(&server), &["filter", "--request", "gpu=1"], 0).contains("passed: gpu-1"));
    assert!(
        ends(
            Some(&server),
            &["place", "--shape", GPU_SHAPE, "--queue", "research"],
            0
        )
        .contains("gpu-1")
    );
    ends(Some(&server), &["capacity", "--shape", GPU_SHAPE], 0);
    for (arguments, exit_code, words) in [
        (&["score", "--request", "gpus=1"][..], 2, "did you mean `gpu`?"),
        (&["filter", "--request", "memroy=1Gi"], 2, "did you mean `memory`?"),
        (
            &["filter", "--request", "nvidia.com/gpuu=1"],
            1,
            "did you mean `nvidia.com/gpu`?",
        ),
        (&["filter", "--task", "train/bret-0"], 1, "did you mean `train/bert-0`?"),
        (
            &["score", "--cpu", "1", "--nodes", "gpu-11"],
            1,
            "did you mean `gpu-1`?",
        ),
        (
            &["score", "--cpu", "1", "--policy", "defualt"],
            1,
            "did you mean `default`?",
        ),
        (
            &["score", "--cpu", "1", "--plugins", "binpak"],
            1,
            "did you mean `binpack`?",
        ),
        (
            &["place", "--shape", "1 cpu", "--queue", "reserch"],
            1,
            "did you mean `research`?",
        ),
        (
            &["capacity", "--shape", "1 cpu", "--queue", "reserch"],
            1,
            "did you mean `research`?",
        ),
        (&["explain", "job", "bret"], 1, "did you mean `train/bert`?"),
    ] {
        let said = ends(Some(&server), arguments, exit_code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn with_lays_records_of_a_file_over_the_state_for_one_query() {
    let folder = TestDirectory::named("what-if");
    let more = written(&folder, "more.yaml", &node_file("big", 64));
    let less = written(
        &folder,
        "less.yaml",
        &node_file("n-1", 1).replace("status:", "spec: {unschedulable: true}\nstatus:"),
    );
    let (job, its_task) = waiting_job("a/w", "q", pb::JobPhase::Inqueue);
    let its_task = pb::Task {
        requests: Some(amounts(&[("cpu", "32")])),
        ..its_task
    };
    let server = server(
        PLAIN,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![small_node("n-1")],
            queues: vec![queue("q")],
            jobs: vec![job],
            tasks: vec![its_task],
            ..pb::Cluster::default()
        },
    );
    assert_eq!(code(&json(&server, &["explain", "job", "a/w"])), "NO_NODE");
    let report = json(&server, &["explain", "job", "a/w", "--with", &more]);
    assert_eq!(code(&report), "PLACEABLE");
    assert_eq!(report["metadata"]["with"][0], more.as_str());
    for arguments in [
        &["filter", "--cpu", "32"][..],
        &["score", "--cpu", "32"],
        &["score", "--task", "a/w-0"],
        &["place", "--shape", "32 cpu", "--queue", "q"],
        &["capacity", "--shape", "32 cpu"],
    ] {
        ends(Some(&server), arguments, 1);
        let said = ends(Some(&server), &[arguments, &["--with", &more]].concat(), 0);
        assert!(said.contains("big"), "{arguments:?}: {said}");
        assert!(said.contains("note: what if: 1 node laid over"), "{said}");
    }
    // A record of the same name replaces the server's; several files add up.
    ends(Some(&server), &["filter", "--cpu", "1"], 0);
    ends(Some(&server), &["filter", "--cpu", "1", "--with", &less], 1);
    ends(
        Some(&server),
        &["filter", "--cpu", "1", "--with", &less, "--with", &more],
        0,
    );
    let nodes = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    assert_eq!(nodes.len(), 1, "the server is only read");
    assert!(!nodes[0].node.as_ref().unwrap().unschedulable);
    let empty = written(&folder, "empty.yaml", "apiVersion: v1\nkind: List\nitems: []\n");
    assert!(ends(Some(&server), &["filter", "--cpu", "1", "--with", &empty], 1).contains("no record in the files"));
}

#[test]
fn a_quota_that_names_no_card_is_0_in_sentence_and_table() {
    let (job, its_task) = card_job("a/asker", pb::JobPhase::Pending, "2");
    let (runs, held) = card_job("a/runs", pb::JobPhase::Running, "1");
    let server = server(
        CARDS,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![card_node("n-1", "8")],
            queues: vec![pb::Queue {
                capability: Some(amounts(&[("cpu", "100"), ("memory", "8G")])),
                ..card_queue("research", "{\"A100\": 8}")
            }],
            jobs: vec![job, runs],
            tasks: vec![its_task, task_on_node(held, pb::TaskStatus::Running, "n-1")],
            ..pb::Cluster::default()
        },
    );
    let report = json(&server, &["explain", "job", "a/asker"]);
    assert_eq!(code(&report), "QUOTA");
    assert_eq!(report["verdict"]["impossible"], true);
    let rows = report["queue"]["account"].as_array().unwrap();
    let row = rows.iter().find(|row| row["resource"] == "H100").unwrap();
    assert_eq!((&row["allocated"], &row["capability"]), (&1.0.into(), &0.0.into()));
    let said = ends(Some(&server), &["explain", "job", "a/asker"], 0);
    assert!(
        said.contains("it never fits: the quota of queue research names no H100"),
        "{said}"
    );
    assert!(said.contains("raise the annotation `volcano.sh/card.quota`"), "{said}");
    assert!(!said.contains("may help"), "beside what never fits: {said}");
    let memory = said.lines().find(|line| line.contains(" memory ")).unwrap();
    assert!(memory.contains(" 8G "), "as the queue's record has it: {memory}");
}

/// Output in a terminal of 80 columns.
fn narrow(server: &EmbeddedServer, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(arguments)
        .env("PUMICE_SERVER", server.grpc.to_string())
        .env("COLUMNS", "80")
        .output()
        .unwrap()
}

#[test]
fn tables_and_sentences_fit_the_terminal() {
    let (holder, held) = card_job("a/holder-with-a-longer-name", pb::JobPhase::Running, "6");
    let (asker, its_task) = card_job("a/asker", pb::JobPhase::Inqueue, "4");
    let server = server(
        CARDS,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![card_node("node-1", "8"), card_node("node-2", "8")],
            queues: vec![card_queue("research", "{\"H100\": 8}")],
            jobs: vec![holder, asker],
            tasks: vec![task_on_node(held, pb::TaskStatus::Running, "node-1"), its_task],
            ..pb::Cluster::default()
        },
    );
    for arguments in [
        &["explain", "job", "a/asker"][..],
        &["explain", "job", "a/holder-with-a-longer-name"],
        &["filter", "--task", "a/asker-0"],
        &["filter", "--cpu", "100"],
        &["score", "--task", "a/asker-0"],
        &["capacity", "--shape", "2 x 4 gpu + 1 cpu"],
        &[
            "place",
            "--shape",
            "4 x 4 gpu + 1 cpu",
            "--queue",
            "research",
            "--card",
            "H100",
        ],
    ] {
        let text = out(&narrow(&server, arguments));
        assert!(text.contains(' '), "{arguments:?}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}\n{text}");
        }
    }
}

#[test]
fn equal_tasks_and_equal_scores_are_grouped() {
    let folder = TestDirectory::named("grouped");
    let pod = |at: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p-{at}}}\nspec:\n  containers:\n  - name: c\n    resources: {{requests: {{cpu: 1}}}}\n---\n"
        )
    };
    let file = written(&folder, "pods.yaml", &(0..6).map(pod).collect::<String>());
    let nodes = (0..12).map(|at| small_node(&format!("n-{at:02}")));
    let server = server(
        PLAIN,
        pb::Cluster {
            nodes: nodes.collect(),
            ..pb::Cluster::default()
        },
    );
    let said = ends(Some(&server), &["filter", "-f", &file], 0);
    assert!(
        said.starts_with("task default/p-0 and 5 more like it: 12 of 12 nodes passed"),
        "{said}"
    );
    let said = ends(Some(&server), &["score", "-f", &file, "--limit", "0"], 0);
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("n-00, n-01, n-02, n-03 and 8 more"), "{said}");
}

#[test]
fn resources_that_an_extender_manages_are_no_reason_against_a_node() {
    let file = |name: &str| format!("{}/tests/data/evictions/{name}", env!("CARGO_MANIFEST_DIR"));
    let server = EmbeddedServer::start();
    ends(Some(&server), &["policy", "push", &file("ignored-policy.yaml")], 0);
    ends(Some(&server), &["state", "load", &file("ignored.yaml")], 0);
    for command in [&["filter", "--task", "x/v-0"][..], &["score", "--task", "x/v-0"]] {
        let said = ends(Some(&server), command, 0);
        assert!(
            said.contains("1 of 1 nodes passed") || said.contains("1 node of 1"),
            "{said}"
        );
    }
    let said = ends(Some(&server), &["explain", "task", "x/v-0"], 0);
    assert!(said.contains("a node takes it now, best on n1"), "{said}");
}
