//! Hypothetical records of files: what the server keeps back stays kept back, and mistakes in the files are named.

use pumice::server::pb;

use super::ends;
use super::explain::{CARDS, PLAIN, card_job, card_node, card_queue, code, server};
use super::json;
use crate::support::TestDirectory;
use crate::support::ledger::{ask, confirm};
use crate::support::records::queue;

const NODE: &str =
    "{apiVersion: v1, kind: Node, metadata: {name: other}, status: {allocatable: {cpu: 4, pods: 110}}}\n";

/// A pod of a job whose queue, priority class and node nobody knows.
const POD: &str = r"
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: x, name: lost}, spec: {queue: nowhere,
 minMember: 1, priorityClassName: higher}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: x, name: lost-0, annotations: {scheduling.k8s.io/group-name: lost}},
 spec: {containers: [{name: a, resources: {request: {cpu: 1}}}]}}
";

#[test]
fn a_reservation_counts_in_the_copy() {
    let (holder, its_task) = card_job("a/holder", pb::JobPhase::Pending, "6");
    let (asker, other_task) = card_job("a/asker", pb::JobPhase::Pending, "4");
    let server = server(
        CARDS,
        pb::Cluster {
            namespaces: Vec::new(),
            nodes: vec![card_node("n-1", "8"), card_node("n-2", "8")],
            queues: vec![card_queue("research", "{\"H100\": 8}")],
            jobs: vec![holder, asker],
            tasks: vec![its_task, other_task],
            ..pb::Cluster::default()
        },
    );
    let folder = TestDirectory::named("what-if-reserved");
    let file = folder.path().join("node.yaml");
    std::fs::write(&file, NODE).unwrap();
    let explain = ["explain", "job", "a/asker", "--with", file.to_str().unwrap()];
    assert_eq!(code(&json(&server, &explain)), "PLACEABLE");
    let by_name = pb::Job {
        name: "a/holder".to_owned(),
        ..pb::Job::default()
    };
    let confirmed = server.wire.admit(confirm(vec![ask(by_name, 0)])).unwrap();
    assert!(confirmed.result.unwrap().items[0].permitted);
    assert_eq!(code(&json(&server, &explain[..3])), "QUOTA");
    assert_eq!(code(&json(&server, &explain)), "QUOTA", "as without the file");
}

#[test]
fn mistakes_in_files_of_a_query_are_named() {
    let server = server(
        PLAIN,
        pb::Cluster {
            queues: vec![queue("q")],
            ..pb::Cluster::default()
        },
    );
    let folder = TestDirectory::named("what-if-mistakes");
    let file = folder.path().join("pod.yaml");
    std::fs::write(&file, POD).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["explain", "--file", file][..],
        &["place", "--file", file],
        &["filter", "--cpu", "1", "--with", file],
    ] {
        let said = super::err(&super::pumice(Some(&server), arguments));
        for expected in ["there is no queue `nowhere`", "higher"] {
            assert!(said.contains(expected), "{arguments:?}: {expected}: {said}");
        }
    }
    // What the server knows is no mistake.
    std::fs::write(folder.path().join("known.yaml"), POD.replace("nowhere", "q")).unwrap();
    let known = folder.path().join("known.yaml");
    let said = ends(Some(&server), &["explain", "--file", known.to_str().unwrap()], 0);
    assert!(!said.contains("there is no queue"), "{said}");
}
