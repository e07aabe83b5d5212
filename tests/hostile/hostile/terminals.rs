//! Stored names that a terminal would obey, as the command line prints them.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::process::{err, out, pumice};
use crate::support::records::{full_sync, job, node, queue, task};

/// Name that clears the screen, colours it, rings, goes back to the begin of the line and turns the text round.
const NAME: &str = "red\u{1b}[2J\u{1b}[31m\u{7}\r\t\u{8}\u{9b}1m\u{202e}x";

fn records() -> pb::Cluster {
    let mut named = node(NAME, &[("cpu", "8"), ("memory", "8Gi"), (NAME, "4")]);
    named.labels.insert(NAME.to_owned(), NAME.to_owned());
    named
        .labels
        .insert("nvidia.com/gpu.product".to_owned(), NAME.to_owned());
    let waiting = task("b", NAME, &[("cpu", "800")]);
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![named],
        queues: vec![queue(NAME), queue("default")],
        jobs: vec![job(NAME, NAME), job("elsewhere", NAME)],
        tasks: vec![
            task(NAME, NAME, &[("cpu", "1")]),
            task("waits", NAME, &[("cpu", "900")]),
            waiting,
        ],
        ..pb::Cluster::default()
    }
}

/// Commands that list or judge what is stored.
const COMMANDS: &[&[&str]] = &[
    &["state", "show"],
    &["state", "show", "nodes"],
    &["state", "show", "queues"],
    &["state", "show", "jobs"],
    &["state", "show", "tasks"],
    &["state", "show", "cards"],
    &["sessions"],
    &["reservations", "list"],
    &["policy", "history"],
    &["filter", "--cpu", "100"],
    &["filter", "--cpu", "1"],
    &["score", "--cpu", "1"],
    &["capacity", "--shape", "1 cpu"],
    &["explain", "job", NAME],
    &["explain", "task", "waits"],
    &["explain", "task", NAME],
    &["explain", "job", "no\u{1b}[2J"],
    &["place", "--shape", "1 x 1 cpu", "--queue", NAME],
];

#[test]
fn no_stored_name_reaches_a_terminal_as_it_is() {
    let server = EmbeddedServer::start();
    let source = "kube";
    server.wire.apply_batch(full_sync(source, 1, records())).unwrap();
    let open = pb::OpenSessionRequest {
        batch: Some(crate::support::records::delta(source, 2, pb::Cluster::default())),
        ..pb::OpenSessionRequest::default()
    };
    server.wire.open_session(open).unwrap();
    let mut escaped = 0;
    for command in COMMANDS {
        let variants = [
            command.to_vec(),
            [command, &["-o", "json"][..]].concat(),
            [command, &["--color", "never"][..]].concat(),
        ];
        for arguments in variants {
            let output = pumice(Some(&server), &arguments);
            for text in [out(&output), err(&output)] {
                let bad = text
                    .chars()
                    .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
                assert_eq!(bad, None, "{arguments:?}: {text:?}");
                escaped += usize::from(text.contains("\\u001b"));
            }
            if arguments.contains(&"json") && output.status.success() {
                let read: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
                assert!(read.is_ok(), "{arguments:?}: {}", out(&output));
            }
        }
    }
    assert!(escaped >= 15, "the names are in {escaped} outputs");
}
