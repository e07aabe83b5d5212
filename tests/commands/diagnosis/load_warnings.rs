//! Everything in the files of a cluster that a load would pass over in silence is named.

use std::path::PathBuf;

use serde_json::Value;

use super::{ends, json, out, pumice};
use crate::support::EmbeddedServer;

/// A cluster with one mistake of each kind, and records that are right beside them.
const MISTAKES: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: a100-1, labels: {nvidia.com/gpu.product: A100, nvidia.com/gpu.count: "8",
 nvidia.com/gpu.memory: "81920"}}, status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: a100-1, labels: {nvidia.com/gpu.product: A100, nvidia.com/gpu.count: "8",
 nvidia.com/gpu.memory: "81920"}}, status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research,
 annotations: {volcano.sh/card.quota: '{"A100": 8}'}}, spec: {capability: {cpu: 100}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: typo,
 annotations: {volcano.sh/card.quota: 'A100=8'}}, spec: {capabilities: {cpu: 100}, parent: reserch}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: cards,
 annotations: {volcano.sh/card.quota: '{"A10O": 4, "A100": 1}', volcano.sh/card.quta: '{}'}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: levels,
 annotations: {volcano.sh/hierarchy: root/a/b, volcano.sh/hierarchy-weights: 1/2}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: x, name: good}, spec: {queue: research,
 minMember: 1, priorityClassName: high}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: x, name: lost, annotations:
 {volcano.sh/card.request: '[8]'}}, spec: {queue: nowhere, minMember: 1, priorityClassName: higher}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: x, name: good-0, annotations: {scheduling.k8s.io/group-name: good,
 volcano.sh/card.name: A100}}, spec: {priorityClassName: high, containers: [{name: a, resources: {limits: {cpu: 1,
 nvidia.com/gpu: 1}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: x, name: lost-0, annotations: {scheduling.k8s.io/group-name: gone,
 volcano.sh/card.name: A100|H900}}, spec: {nodeName: a100-2, containers: [{name: a, resources: {request: {cpu: 1}}}]},
 status: {phase: Running}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
"#;

/// Code and subject of every warning that the mistakes cause.
const EXPECTED: [(&str, &str); 12] = [
    ("ANNOTATION_INVALID", "job x/lost"),
    ("ANNOTATION_INVALID", "queue levels"),
    ("ANNOTATION_INVALID", "queue typo"),
    ("RECORD_DUPLICATE", "node a100-1"),
    ("FIELD_NOT_READ", "Pod x/lost-0"),
    ("FIELD_NOT_READ", "Queue cards"),
    ("FIELD_NOT_READ", "Queue typo"),
    ("CARD_UNKNOWN", "queue cards"),
    ("CARD_UNKNOWN", "task x/lost-0"),
    ("JOB_UNKNOWN", "task x/lost-0"),
    ("NODE_UNKNOWN", "task x/lost-0"),
    ("PRIORITY_CLASS_UNKNOWN", "job x/lost"),
];
const EXPECTED_QUEUES: [(&str, &str); 2] = [
    ("QUEUE_UNKNOWN", "job x/lost"),
    ("QUEUE_UNKNOWN", "parent of queue typo"),
];

pub(super) fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pumice-warnings-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// Keys of all objects in a value, except below `data`, whose keys are names.
fn keys(value: &Value, data: &[&str], into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.push(key.clone());
                if !data.contains(&key.as_str()) {
                    keys(value, data, into);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, data, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn json_of_every_command_has_keys_in_one_casing() {
    let server = EmbeddedServer::start();
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let [pack, spread] = ["pack", "spread"].map(|name| format!("{examples}/{name}.yaml"));
    let cases = format!("{examples}/tests/pack.yaml");
    let changed = file(
        "changed.yaml",
        &std::fs::read_to_string(dump).unwrap().replacen("cpu-1", "cpu-9", 1),
    );
    let changed = changed.to_str().unwrap();
    for command in [
        vec!["state", "load", dump],
        vec!["state", "diff", changed],
        vec!["state", "show"],
        vec!["state", "show", "cards"],
        vec!["state", "show", "nodes"],
        vec!["policy", "check", &pack],
        vec!["policy", "diff", &pack, &spread, "--cluster", dump],
        vec!["policy", "push", &pack],
        vec!["policy", "history"],
        vec!["policy", "test", &cases],
        vec!["simulate", dump, "--policy", "pack"],
    ] {
        let output = pumice(Some(&server), &[&command[..], &["-o", "json"]].concat());
        let found: Value = serde_json::from_str(&out(&output)).unwrap_or_else(|error| {
            panic!("{command:?}: {error}: {}{}", out(&output), super::err(&output));
        });
        let mut all = Vec::new();
        // Resources, labels, cards, kinds of queries and percentiles are names.
        let data = [
            "items",
            "labels",
            "annotations",
            "cards",
            "queries",
            "latencySeconds",
            "correctedLatencySeconds",
        ];
        keys(&found, if command[1] == "show" { &data[..3] } else { &data }, &mut all);
        assert!(!all.is_empty(), "{command:?}");
        for key in all {
            let camel =
                key.starts_with(|c: char| c.is_ascii_lowercase()) && key.chars().all(|c| c.is_ascii_alphanumeric());
            assert!(camel, "{command:?}: {key}");
        }
    }
    std::fs::remove_file(changed).unwrap();
}

/// Code and subject of each warning of a list of groups, sorted.
fn warnings(groups: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for group in groups.as_array().unwrap() {
        let subjects = group["subjects"].as_array().unwrap();
        assert_eq!(group["count"], subjects.len());
        for subject in subjects {
            found.push((
                group["code"].as_str().unwrap().to_owned(),
                subject.as_str().unwrap().to_owned(),
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn a_load_names_all_that_it_would_pass_over_in_silence() {
    let server = EmbeddedServer::start();
    let path = file("all.yaml", MISTAKES);
    let path = path.to_str().unwrap();
    let loaded = json(&server, &["state", "load", path]);
    let mut expected: Vec<(String, String)> = EXPECTED
        .iter()
        .chain(&EXPECTED_QUEUES)
        .map(|(code, subject)| ((*code).to_owned(), (*subject).to_owned()))
        .collect();
    expected.sort();
    assert_eq!(warnings(&loaded["loadWarnings"]), expected);

    let said = ends(Some(&server), &["state", "load", path], 0);
    for line in [
        "field `spec.containers[].resources.request` is not read; did you mean `requests`?: Pod x/lost-0 (FIELD_NOT_READ)",
        "field `spec.capabilities` is not read; did you mean `capability`?: Queue typo (FIELD_NOT_READ)",
        "there is no queue `reserch`; did you mean `research`?: parent of queue typo (QUEUE_UNKNOWN)",
        "no node has card `A10O`; did you mean `A100`?: queue cards (CARD_UNKNOWN)",
        "annotation `volcano.sh/card.quota`: no valid JSON at byte 0: expected a JSON object: queue typo",
    ] {
        assert!(said.contains(&format!("warning: {line}")), "{line}: {said}");
    }
    let jobs = json(&server, &["state", "show", "jobs"]);
    let priorities: Vec<&Value> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| &job["job"]["priority"])
        .collect();
    assert_eq!(
        priorities,
        [&Value::from(1000), &Value::Null],
        "x/good has the value of its class"
    );
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_limit_on_pods_is_said_to_have_no_effect() {
    let server = EmbeddedServer::start();
    let queue = |name: &str, limit: &str| {
        format!(
            "{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: {name}}}, spec: {{capability: \
             {limit}}}}}\n---\n"
        )
    };
    let path = file(
        "pods.yaml",
        &(queue("counted", "{cpu: 5}") + &queue("uncounted", "{cpu: 5, pods: 5}")),
    );
    let said = ends(Some(&server), &["state", "load", path.to_str().unwrap()], 0);
    assert!(said.contains("no plugin limits the pods of a queue"), "{said}");
    assert!(said.contains("queue uncounted (RESOURCE_IGNORED)"), "{said}");
    assert!(!said.contains("queue counted"), "{said}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn strict_loads_send_nothing_when_there_are_warnings() {
    let server = EmbeddedServer::start();
    let path = file("strict.yaml", MISTAKES);
    let path = path.to_str().unwrap();
    let said = ends(Some(&server), &["state", "load", path, "--strict"], 1);
    assert!(
        said.contains("error: 14 warnings under --strict: nothing was sent"),
        "{said}"
    );
    assert!(ends(Some(&server), &["state", "show", "nodes"], 0).contains("0 nodes"));
    ends(None, &["simulate", path, "--strict", "--policy", "pack"], 1);
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");
    let said = ends(Some(&server), &["state", "load", dump], 0);
    assert!(!said.contains("NODE_UNKNOWN"), "{said}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn references_to_records_of_other_sources_are_no_mistakes() {
    let server = EmbeddedServer::start();
    let nodes = "{apiVersion: v1, kind: Node, metadata: {name: n-1, labels: {nvidia.com/gpu.product: A100}}, status: \
                 {allocatable: {cpu: 8, nvidia.com/gpu: 8}}}\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: \
                 Queue, metadata: {name: q}}\n";
    let rest = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: x, name: g}, spec: \
                {queue: q}}\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: x, name: p, annotations: \
                {volcano.sh/card.name: A100, scheduling.k8s.io/group-name: g}}, spec: {nodeName: n-1, containers: []}, \
                status: {phase: Running}}\n";
    let (nodes, rest) = (file("nodes.yaml", nodes), file("rest.yaml", rest));
    let (nodes, rest) = (nodes.to_str().unwrap(), rest.to_str().unwrap());
    ends(
        Some(&server),
        &["state", "load", nodes, "--source", "nodes", "--strict"],
        0,
    );
    ends(
        Some(&server),
        &["state", "load", rest, "--source", "rest", "--strict"],
        0,
    );
    // What this load replaces is no record to refer to.
    let said = ends(
        Some(&server),
        &["state", "load", rest, "--source", "nodes", "--strict"],
        1,
    );
    for code in ["NODE_UNKNOWN", "QUEUE_UNKNOWN", "CARD_UNKNOWN"] {
        assert!(said.contains(code), "{said}");
    }
    for path in [nodes, rest] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn diff_watch_test_and_simulate_name_the_same_mistakes() {
    let server = EmbeddedServer::start();
    let path = file("others.yaml", MISTAKES);
    let path = path.to_str().unwrap();
    let cases = format!(
        "policy: {}/examples/pack.yaml\nclusterFile: {path}\ncases:\n- name: one\n  filter: {{task: x/good-0}}\n  expect: \
         {{fit: [a100-1]}}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let cases = file("cases.yaml", &cases);
    let cases = cases.to_str().unwrap();
    let diff = ends(Some(&server), &["state", "diff", path], 1);
    let tested = pumice(None, &["policy", "test", cases]);
    let tested = format!("{}{}", out(&tested), super::err(&tested));
    let simulated = ends(None, &["simulate", path, "--policy", "pack"], 0);
    for (code, _) in EXPECTED.iter().chain(&EXPECTED_QUEUES) {
        for said in [&diff, &tested, &simulated] {
            assert!(said.contains(&format!("({code})")), "{code}: {said}");
        }
    }
    ends(Some(&server), &["state", "load", path], 0);
    let watched = pumice(Some(&server), &["state", "watch", "--count", "0"]);
    let said = super::err(&watched);
    for code in [
        "NODE_UNKNOWN",
        "QUEUE_UNKNOWN",
        "JOB_UNKNOWN",
        "CARD_UNKNOWN",
        "ANNOTATION_INVALID",
    ] {
        assert!(said.contains(&format!("({code})")), "{code}: {said}");
    }
    for path in [path, cases] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn the_cards_of_a_cluster_are_listed_under_any_policy() {
    let server = EmbeddedServer::start();
    let cluster = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {nvidia.com/gpu.product: A100}}, status: \
                   {allocatable: {cpu: 8, nvidia.com/gpu: 8}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: b, \
                   labels: {nvidia.com/gpu.product: A100}}, status: {allocatable: {cpu: 8, nvidia.com/gpu: \
                   4}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: c, labels: {nvidia.com/gpu.product: H100}}, \
                   status: {allocatable: {cpu: 8, nvidia.com/gpu: 2}}}\n---\n{apiVersion: v1, kind: Pod, metadata: \
                   {namespace: x, name: p}, spec: {nodeName: a, containers: [{name: a, resources: {limits: \
                   {nvidia.com/gpu: 3}}}]}, status: {phase: Running}}\n";
    let path = file("cards.yaml", cluster);
    ends(Some(&server), &["state", "load", path.to_str().unwrap()], 0);
    std::fs::remove_file(&path).unwrap();
    let list = json(&server, &["state", "show", "cards"]);
    let row = |card: &str, nodes: u32, total: u32, held: f64, free: f64| {
        serde_json::json!({"card": card, "resource": "nvidia.com/gpu", "nodes": nodes, "total": total, "held": held,
                           "free": free})
    };
    assert_eq!(
        list["cards"],
        serde_json::json!([row("A100", 2, 12, 3.0, 9.0), row("H100", 1, 2, 0.0, 2.0)])
    );
    let table = ends(Some(&server), &["state", "show", "cards", "A10O", "A100"], 0);
    assert!(table.contains("A100  nvidia.com/gpu  2      12     3     9"), "{table}");
    assert!(
        table.contains("no node has card `A10O`; did you mean `A100`?"),
        "{table}"
    );
    assert!(
        table.contains("1 kind of cards on 3 nodes") && !table.contains("H100"),
        "{table}"
    );
}
