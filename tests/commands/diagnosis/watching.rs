//! `pumice state watch`, `pumice state diff` and `pumice sessions`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use pumice::server::pb;
use serde_json::Value;

use super::{ends, err, json, out, pumice};
use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, job, node, nodes, queue, session_ref, task, task_on_node};
use pb::session_change::Change;

#[test]
fn changes_are_shown_as_they_become_visible() {
    let server = EmbeddedServer::start();
    let cluster = pb::Cluster {
        nodes: vec![node("n-1", &[("cpu", "8")]), node("n-2", &[("cpu", "8")])],
        tasks: vec![task("a/t", "", &[("cpu", "2")])],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["state", "watch", "--interval", "20ms", "--count", "4"])
        .env("PUMICE_SERVER", server.grpc.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("watching from revision "), "{first}");
    assert!(first.ends_with("2 nodes, 0 queues, 0 jobs, 1 task"), "{first}");
    let put = pb::Cluster {
        nodes: vec![node("n-1", &[("cpu", "16")]), node("n-3", &[("cpu", "8")])],
        tasks: vec![task_on_node(
            task("a/t", "", &[("cpu", "2")]),
            pb::TaskStatus::Running,
            "n-1",
        )],
        ..pb::Cluster::default()
    };
    let remove = pb::Removals {
        nodes: vec!["n-2".to_owned()],
        ..pb::Removals::default()
    };
    let batch = pb::Batch {
        remove: Some(remove),
        ..delta("test", 2, put)
    };
    let revision = server.wire.apply_batch(batch).unwrap().revision.unwrap().number;
    let shown: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    let wanted = [
        "~ node n-1: allocatable[cpu] 8 → 16",
        "- node n-2: allocatable[cpu] 8, allocatable[pods] 110",
        "+ node n-3: allocatable[cpu] 8, allocatable[pods] 110",
        "~ task a/t: node (none) → n-1, status pending → running",
    ];
    let wanted: Vec<String> = wanted.iter().map(|line| format!("{revision} {line}")).collect();
    assert_eq!(shown, wanted);
}

/// Removes a queue of the source `file`, in its third batch.
fn remove_queue_of_file(server: &EmbeddedServer, name: &str) {
    let remove = pb::Removals {
        queues: vec![name.to_owned()],
        ..pb::Removals::default()
    };
    let batch = pb::Batch {
        source_epoch: 1,
        remove: Some(remove),
        ..delta("file", 3, pb::Cluster::default())
    };
    server.wire.apply_batch(batch).unwrap();
}

#[test]
fn a_dump_is_compared_with_the_server() {
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");
    let server = EmbeddedServer::start();
    ends(Some(&server), &["state", "load", dump], 0);
    let said = ends(Some(&server), &["state", "diff", dump], 0);
    assert!(said.contains("the same: 4 nodes, 2 queues, 1 job, 4 tasks"), "{said}");
    // Another source sends a node, and one task changes.
    server
        .wire
        .apply_batch(full_sync("other", 1, nodes(vec![node("n-new", &[("cpu", "1")])])))
        .unwrap();
    let said = ends(Some(&server), &["state", "diff", dump, "--source", "file"], 0);
    assert!(said.contains("the same: 4 nodes, 2 queues, 1 job, 4 tasks"), "{said}");
    let tasks = server.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let mut moved = tasks[1].task.clone().unwrap();
    assert_eq!(moved.name, "train/bert-worker-1");
    moved.set_status(pb::TaskStatus::Bound);
    moved.node = "gpu-1".to_owned();
    let put = pb::Cluster {
        tasks: vec![moved],
        ..pb::Cluster::default()
    };
    let refused = server.wire.apply_batch(pb::Batch {
        source_epoch: 1,
        ..delta("file", 2, put)
    });
    assert_eq!(refused.unwrap().refused, Vec::new());
    let output = pumice(Some(&server), &["state", "diff", dump, "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let found: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(found["missing"], Value::Array(Vec::new()));
    assert_eq!(found["extra"][0]["name"], "n-new");
    let different = &found["different"];
    assert_eq!(different.as_array().unwrap().len(), 1);
    assert_eq!(different[0]["name"], "train/bert-worker-1");
    let fields: Vec<&str> = different[0]["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["node", "status"]);
    // The queue `root` that the load made is no difference where it is not.
    remove_queue_of_file(&server, "root");
    let filed = ends(Some(&server), &["state", "diff", dump], 1);
    assert!(
        filed.contains("extra: on the server, not in the file (1)") && !filed.contains("missing:"),
        "{filed}"
    );
    let filed = ends(Some(&server), &["state", "diff", dump, "--source", "other"], 1);
    assert!(filed.contains("extra: on the server, not in the file (1)"), "{filed}");
    let unknown = pumice(Some(&server), &["state", "diff", dump, "--source", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    let message = "error: the server knows no source `nobody`; it knows: file, other";
    assert!(err(&unknown).contains(message), "{}", err(&unknown));
    let said = ends(Some(&server), &["state", "diff", dump, "--source", "file"], 1);
    assert!(!said.contains("n-new"), "{said}");
    assert!(
        said.contains("~ task train/bert-worker-1: node (none) → gpu-1, status pending → bound"),
        "{said}"
    );
}

#[test]
fn open_sessions_are_listed_and_closed() {
    let server = EmbeddedServer::start();
    assert!(ends(Some(&server), &["sessions"], 0).contains("0 sessions"));
    let cluster = pb::Cluster {
        nodes: vec![node("n-1", &[("cpu", "8")])],
        queues: vec![queue("q")],
        jobs: vec![job("a/j", "q")],
        tasks: vec![task("a/t", "a/j", &[("cpu", "2")])],
        ..pb::Cluster::default()
    };
    let open = pb::OpenSessionRequest {
        batch: Some(full_sync("volcano", 1, cluster)),
        lease: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
        ..pb::OpenSessionRequest::default()
    };
    let opened = server.wire.open_session(open).unwrap();
    let second = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    let placed = pb::TaskPlacement {
        task: "a/t".to_owned(),
        node: "n-1".to_owned(),
        ..pb::TaskPlacement::default()
    };
    let changes = vec![Change::Savepoint("start".to_owned()), Change::Allocate(placed)];
    let query = pb::FilterRequest {
        against: Some(session_ref(&opened.session, 0, changes)),
        ..pb::FilterRequest::default()
    };
    server.wire.filter(query).unwrap();
    let listed = json(&server, &["sessions"]);
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    let one = sessions
        .iter()
        .find(|one| one["session"] == opened.session.as_str())
        .unwrap();
    assert_eq!(one["source"], "volcano");
    assert_eq!((&one["changes"], &one["savepoints"]), (&"2".into(), &1.into()));
    assert_eq!(
        (&one["policy"], &one["policyVersion"]),
        (&"default".into(), &"1".into())
    );
    let left = one["leaseLeft"]
        .as_str()
        .unwrap()
        .trim_end_matches('s')
        .parse::<f64>()
        .unwrap();
    assert!(left > 0.0 && left <= 20.0, "{left}");
    let table = ends(Some(&server), &["sessions"], 0);
    assert!(table.contains("default@1") && table.contains("2 sessions"), "{table}");
    assert!(ends(Some(&server), &["sessions", "close", &opened.session], 0).contains("closed after 2 changes"));
    assert!(ends(Some(&server), &["sessions", "close", "no.such"], 1).contains("SESSION"));
    let page = pb::ListSessionsRequest {
        page: Some(pb::Page {
            size: 1,
            token: String::new(),
        }),
    };
    let left = server.wire.list_sessions(page).unwrap();
    assert_eq!((left.sessions.len(), left.next_page_token.as_str()), (1, ""));
    assert_eq!(left.sessions[0].session, second.session);
}
