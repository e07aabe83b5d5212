//! `pumice place` and `pumice capacity`, as people run the program.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use pumice::server::pb;
use serde_json::{Value, json};

use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, node, nodes, queue};

const GANG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gang.yaml");
const GPU: &str = "nvidia.com/gpu";

/// Runs `pumice` against a server. Returns its exit code, output and error output.
fn pumice(server: &EmbeddedServer, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(arguments)
        .env("PUMICE_SERVER", server.grpc.to_string())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Node with eight cards of a kind.
fn gpus(name: &str, card: &str, cpu_used: &str, cards_used: &str) -> pb::Node {
    let labels = [("product", card), ("count", "8"), ("memory", "81920")];
    pb::Node {
        labels: labels
            .map(|(end, text)| (format!("{GPU}.{end}"), text.to_owned()))
            .into(),
        unattributed_used: Some(amounts(&[("cpu", cpu_used), (GPU, cards_used)])),
        ..node(name, &[("cpu", "64"), ("memory", "256Gi"), (GPU, "8")])
    }
}

fn quota(name: &str, quota: &str) -> pb::Queue {
    pb::Queue {
        annotations: BTreeMap::from([("volcano.sh/card.quota".to_owned(), quota.to_owned())]),
        capability: Some(amounts(&[("cpu", "1000"), ("memory", "1Ti")])),
        ..queue(name)
    }
}

fn started() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    server
        .wire
        .reload_policy(pb::ReloadPolicyRequest {
            document: "actions: allocate\ntiers:\n- plugins: [{name: capacity-card}, {name: binpack}]\n".to_owned(),
            ..pb::ReloadPolicyRequest::default()
        })
        .unwrap();
    let cluster = pb::Cluster {
        queues: vec![
            quota("research", r#"{"A100": 12, "H100": 4}"#),
            quota("small", r#"{"A100": 3}"#),
        ],
        ..nodes(vec![
            gpus("a0", "A100", "0", "0"),
            gpus("a1", "A100", "64", "2"),
            gpus("h0", "H100", "8", "5"),
        ])
    };
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    server
}

#[test]
fn capacity_counts_shapes_by_queue_and_card_and_names_stranded_cards() {
    let server = started();
    let shape = ["capacity", "--shape", "2 x 2 gpu + 8 cpu"];
    let (code, text, complaint) = pumice(&server, &[&shape[..], &["-o", "json"]].concat());
    assert_eq!(code, Some(0), "{complaint}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let rows: Vec<(&str, &str, &Value, &Value)> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["queue"].as_str().unwrap(),
                row["card"].as_str().unwrap(),
                &row["shapes"],
                &row["nodes"],
            )
        })
        .collect();
    let (none, one) = (json!({}), json!({"h0": 1}));
    assert_eq!(
        rows,
        [
            // Of twelve cards eight have cpu beside them.
            ("research", "A100", &json!(2), &json!({"a0": 4})),
            // Three cards are free: one pod fits, and no pair.
            ("research", "H100", &json!(0), &one),
            // Three cards of quota are left: one pod fits, and no pair.
            ("small", "A100", &json!(0), &json!({"a0": 1})),
            ("small", "H100", &json!(0), &none),
        ]
    );
    assert_eq!(report["rows"][2]["blockers"][0]["plugin"], "capacity-card");
    assert_eq!(
        report["cards"],
        json!({
            "A100": {"total": 16, "free": 14, "stranded": 6, "fragmented": 0},
            "H100": {"total": 8, "free": 3, "stranded": 0, "fragmented": 1},
        })
    );

    let (code, text, _) = pumice(
        &server,
        &[&shape[..], &["--queue", "research", "--card", "A100"]].concat(),
    );
    assert_eq!(code, Some(0));
    let row: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["research", "A100", "2", "4", "a0", "(4)"], "{text}");
    assert!(text.contains("stranded: free, but their node has no cpu"), "{text}");

    // The pods of a file name the usable cards.
    let (code, text, complaint) = pumice(&server, &["capacity", "-f", GANG, "-o", "json"]);
    assert_eq!(code, Some(0), "{complaint}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["pods"], &report["rows"][0]["shapes"]), (&json!(2), &json!(2)));
    assert_eq!(report["rows"].as_array().unwrap().len(), 2, "one per queue");
}

#[test]
fn capacity_says_what_it_cannot_count() {
    let server = started();
    let cases: [(&[&str], i32, &str); 6] = [
        (
            &["--shape", "8 gpus"],
            2,
            "`gpus` is no resource of a node; did you mean `gpu`?",
        ),
        (&["--shape", "eight x 1 gpu"], 2, "no shape"),
        (
            &["--shape", "1 gpu", "--queue", "reserch"],
            1,
            "did you mean `research`?",
        ),
        (&["--shape", "1 gpu", "--card", "V100"], 1, "no node has a card `V100`"),
        (&["--shape", "1 gpu", "--card", "A10"], 1, "did you mean `A100`?"),
        (
            &["--shape", "1 gpu", "--policy", "defalt"],
            1,
            "did you mean `default`?",
        ),
    ];
    for (arguments, code, word) in cases {
        let (ended, _, complaint) = pumice(&server, &[&["capacity"], arguments].concat());
        assert_eq!(ended, Some(code), "{arguments:?}: {complaint}");
        assert!(complaint.contains(word), "{arguments:?}: {complaint}");
    }
}

#[test]
fn place_shows_where_a_file_would_go() {
    let server = started();
    let (code, text, complaint) = pumice(&server, &["place", "-f", GANG]);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(text.contains("2 of 2 tasks found a place, 2 needed"), "{text}");
    let row: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(row, ["2", "task", "train/gang-0", "a0", "idle", "A100"]);

    let (code, text, complaint) = pumice(&server, &["place", "-f", GANG, "--exclude", "a0"]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("0 tasks found a place, 2 are needed"), "{complaint}");
    assert!(text.contains("insufficient cpu"), "{text}");

    let alone = std::env::temp_dir().join(format!("pumice-alone-{}.yaml", std::process::id()));
    std::fs::write(
        &alone,
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}\n",
    )
    .unwrap();
    // The server has no queue `default`, in which Volcano would make its PodGroup.
    let (code, _, complaint) = pumice(&server, &["place", "-f", alone.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("the tasks name no job"), "{complaint}");
    let two = "---\n{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: {containers: []}}\n";
    let both = std::fs::read_to_string(&alone).unwrap() + two;
    std::fs::write(&alone, both).unwrap();
    let (code, _, complaint) = pumice(&server, &["place", "-f", alone.to_str().unwrap()]);
    std::fs::remove_file(alone).unwrap();
    assert_eq!(code, Some(1));
    assert!(
        complaint.contains("default/p: the pod names no PodGroup"),
        "{complaint}"
    );

    let (code, text, _) = pumice(&server, &["place", "-f", GANG, "--count", "5", "-o", "json"]);
    let reply: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &reply["result"]["placedCount"]), (Some(0), &json!(4)), "{text}");
}
