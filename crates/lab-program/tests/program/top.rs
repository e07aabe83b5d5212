//! Live view, as the text that scripts get.

use std::process::Command;

use super::{err, lab, out, pumice};
use crate::support::EmbeddedServer;

const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/dump.yaml");
const PLAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hdrf.yaml");

#[test]
fn one_frame_shows_the_server_and_its_activity() {
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let read = |mut command: Command| {
        let output = command.args(["--server", &address]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", err(&output));
        out(&output)
    };
    let run = |arguments: &[&str]| read(pumice(arguments));
    run(&["state", "load", DUMP]);
    run(&["policy", "push", PLAIN]);
    run(&["filter", "--cpu", "1"]);
    let refused = pumice(&["filter", "--cpu", "1", "--policy", "gone", "--server", &address])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let metrics = format!("http://{}/metrics", server.http);
    for once in [&["--once"][..], &[]] {
        // Standard output is a pipe here, which implies --once.
        let frame = read(lab(&[&["top", "--metrics", &metrics][..], once].concat()));
        for words in [
            concat!("pumice ", env!("CARGO_PKG_VERSION"), " at 127.0.0.1:"),
            "policies  default version 2 ",
            "sources   file synced, heard ",
            "state     4 nodes  2 queues  1 jobs  4 tasks",
            "refused   nothing",
            "RPC (since start)   CALLS/S",
            "QUEUE                   SHARE BY",
            "\nresearch ",
        ] {
            assert!(frame.contains(words), "{words}: {frame}");
        }
        let filter = frame.lines().find(|line| line.starts_with("Filter ")).unwrap();
        assert!(filter.ends_with("       1"), "one call failed: {filter}");
        assert!(!frame.contains('\u{1b}') && !frame.contains("q quit"), "{frame}");
    }
}

#[test]
fn without_metrics_it_shows_what_it_can_and_says_so() {
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let output = lab(&[
        "top",
        "--once",
        "--metrics",
        "http://127.0.0.1:1/metrics",
        "--server",
        &address,
    ])
    .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        err(&output).contains("warning: no metrics: http://127.0.0.1:1/metrics: "),
        "{}",
        err(&output)
    );
    assert!(out(&output).starts_with("pumice "), "{}", out(&output));
    let nobody = lab(&["top", "--server", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3));
}
