//! Load generator: it reports the latencies that callers would have felt, stalls included.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{err, lab, out, pumice};
use crate::support::EmbeddedServer;
use crate::support::process::ServeProcess;
use crate::support::records::{full_sync, node, nodes};
use crate::support::server::page;

const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/dump.yaml");

/// Time for which the server is suspended.
const STALL: Duration = Duration::from_secs(1);

/// Number of calls of Filter that the server has finished.
fn completed_calls(process: &ServeProcess) -> u64 {
    let (_, text) = page(process.http, "/metrics");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("pumice_calls_total{rpc=\"Filter\",code=\"OK\"} "));
    line.map_or(0, |count| count.parse().unwrap())
}

/// Report of a load during which the server stalls once.
fn stalled(arguments: &[&str]) -> Value {
    let process = ServeProcess::start(&[]);
    let mut command = lab(&[
        "bench",
        "--query",
        "empty",
        "--concurrency",
        "1",
        "--warm-up",
        "0s",
        "-o",
        "json",
    ]);
    command
        .args(["--duration", "3s", "--server", &process.grpc.to_string()])
        .args(arguments);
    command.args(["--metrics", &format!("http://{}/metrics", process.http)]);
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while completed_calls(&process) < 30 {
        std::thread::sleep(Duration::from_millis(5));
    }
    process.pause();
    std::thread::sleep(STALL);
    process.resume();
    read(&bench.wait_with_output().unwrap())
}

fn read(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn latency_value(report: &Value, latencies: &str, name: &str) -> f64 {
    report[latencies][name]
        .as_f64()
        .unwrap_or_else(|| panic!("{latencies}.{name}: {report}"))
}

#[test]
fn an_open_loop_shows_a_stall_to_everybody_who_would_have_met_it() {
    let report = stalled(&["--rate", "100"]);
    assert_eq!(report["loop"], "open");
    assert_eq!(report["completed"], 300, "{report}");
    // A third of the calls was due while the server stood still: on average they waited half of that time.
    assert!(latency_value(&report, "latencySeconds", "p90") > 0.3, "{report}");
    assert!(latency_value(&report, "latencySeconds", "max") > 0.8, "{report}");
    assert!(
        latency_value(&report, "startDelaySeconds", "p90") > 0.3,
        "one caller: they waited for it: {report}"
    );
}

#[test]
fn a_closed_loop_hides_a_stall_and_its_correction_shows_it() {
    let report = stalled(&[]);
    assert_eq!(report["loop"], "closed");
    assert!(latency_value(&report, "latencySeconds", "max") > 0.8, "{report}");
    let (hidden, shown) = (
        latency_value(&report, "latencySeconds", "p99"),
        latency_value(&report, "correctedLatencySeconds", "p99"),
    );
    assert!(shown > 0.5 && shown > hidden, "{report}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case after another, each short")]
fn a_load_asks_about_the_servers_nodes_and_changes_nothing() {
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let metrics = format!("http://{}/metrics", server.http);
    let to = ["--server", &address, "--metrics", &metrics];
    assert!(
        pumice(&["state", "load", DUMP, "--server", &address])
            .output()
            .unwrap()
            .status
            .success()
    );
    // A removed node keeps its slot in the node table, and does not count.
    for (sequence, gone) in [(1, vec![node("n-gone", &[("cpu", "1")])]), (2, Vec::new())] {
        server
            .wire
            .apply_batch(full_sync("gone", sequence, nodes(gone)))
            .unwrap();
    }
    let info = || {
        server
            .wire
            .get_server_info(pumice::server::pb::GetServerInfoRequest::default())
            .unwrap()
    };
    let before = info();
    assert_eq!(before.node_table.as_ref().unwrap().length, 5);
    let mut command = lab(&[
        "bench",
        "--count",
        "40",
        "--warm-up",
        "0s",
        "--tasks",
        "3",
        "--concurrency",
        "2",
    ]);
    let report = read(
        &command
            .args(["--connections", "2", "-o", "json"])
            .args(to)
            .output()
            .unwrap(),
    );
    assert_eq!(report["completed"], 40, "{report}");
    assert_eq!(report["nodes"], 4);
    for (query, calls) in [("filter", 20), ("score", 16), ("order", 4)] {
        assert_eq!(report["queries"][query]["calls"], calls, "{report}");
    }
    let file = lab(&[
        "bench",
        "--query",
        "score",
        "--count",
        "5",
        "--warm-up",
        "0s",
        "-f",
        DUMP,
    ])
    .args(to)
    .output();
    let file = file.unwrap();
    assert!(
        out(&file).contains("5 completed, 0 failed"),
        "{}{}",
        out(&file),
        err(&file)
    );
    assert!(out(&file).contains("closed loop: "), "{}", out(&file));
    assert!(out(&file).contains("\n corrected "), "{}", out(&file));
    assert_eq!(info().revision, before.revision);
    assert_eq!(info().sources.len(), before.sources.len());
}

#[test]
fn errors_are_counted_by_code_and_fail_the_command() {
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let run = |arguments: &[&str]| lab(&["bench", "--server", &address]).args(arguments).output().unwrap();
    let output = run(&[
        "--query",
        "order",
        "--count",
        "7",
        "--warm-up",
        "0s",
        "--policy",
        "gone",
        "-o",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("7 of 7 calls failed"), "{}", err(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        report["errors"],
        serde_json::json!([{ "code": "NotFound", "reason": "POLICY_UNKNOWN", "calls": 7 }])
    );
    let nothing = run(&["--query", "filter", "--count", "1"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(err(&nothing).contains("pumice state load"), "{}", err(&nothing));
    for wrong in [
        ["--rate", "0"],
        ["--duration", "10"],
        ["--duration", "0s"],
        ["--concurrency", "0"],
    ] {
        assert_eq!(run(&wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_fleet_places_all_jobs_and_checks_what_it_saw() {
    let size = ["--nodes", "30", "--tasks", "602", "--gang", "4", "--schedulers", "8"];
    let fleet = |arguments: &[&str]| {
        let mut command = lab(&["bench", "fleet", "-o", "json"]);
        command.args(size).args(arguments).output().unwrap()
    };
    let own = fleet(&[]);
    assert_eq!(own.status.code(), Some(0), "{}", err(&own));
    let report: Value = serde_json::from_slice(&own.stdout).unwrap();
    assert_eq!(
        (&report["committed"], &report["calls"]),
        (&602.into(), &151.into()),
        "{report}"
    );
    assert_eq!(
        (&report["unplacedJobs"], &report["violationCount"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    assert_eq!(report["tries"], 151, "nobody is in the way of another");
    assert_eq!(report["conflictPercent"], 0.0);
    assert!(report["committedPerSecond"].as_f64().unwrap() > 0.0);
    assert!(
        err(&own).contains("compared with 602 tasks that the server lists"),
        "{}",
        err(&own)
    );

    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let running = fleet(&["--address", &address, "--jobs", "20"]);
    assert_eq!(running.status.code(), Some(0), "{}", err(&running));
    let report: Value = serde_json::from_slice(&running.stdout).unwrap();
    assert_eq!(report["committed"], 80);
    assert_eq!(server.state.snapshot().state.assumed_count(), 80);
    let again = fleet(&["--address", &address]);
    assert_eq!(again.status.code(), Some(1));
    assert!(err(&again).contains("the server has nodes already"), "{}", err(&again));
}
