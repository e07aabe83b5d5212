//! Readers beside a writer: never a torn state, never half a batch, never back in time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, full_sync_part, hypothetical_task, node, task, task_on_node};
use crate::support::wire::BlockingClients;

/// Two nodes of one size, and a task on the first in even generations, on the second in odd ones.
fn generation(number: u64) -> pb::Cluster {
    let size = (number + 2).to_string();
    let on = if number.is_multiple_of(2) { "a" } else { "b" };
    let task = task_on_node(task("ns/t", "", &[("cpu", "1")]), pb::TaskStatus::Running, on);
    pb::Cluster {
        nodes: ["a", "b"]
            .map(|name| node(name, &[("cpu", &size), ("memory", "8Gi")]))
            .to_vec(),
        tasks: vec![task],
        ..pb::Cluster::default()
    }
}

/// Revision of one listing, after a check that it shows one whole generation.
fn check_listing(wire: &BlockingClients) -> u64 {
    let reply = wire.list_nodes(pb::ListNodesRequest::default()).unwrap();
    let size = |node: &pb::NodeStatus| {
        let record = node.node.clone().unwrap_or_default();
        record.allocatable.unwrap_or_default().items.get("cpu").cloned()
    };
    let [a, b] = &reply.nodes[..] else {
        panic!("two nodes at all times, not {:?}", reply.nodes)
    };
    assert_eq!(size(a), size(b), "both nodes are of one batch");
    let used = |node: &pb::NodeStatus| {
        node.used
            .iter()
            .find(|amount| amount.resource == "cpu")
            .map(|amount| amount.value)
    };
    let number: u64 = size(a).unwrap().parse().unwrap();
    let on_a = used(a).unwrap_or(0.0) > 0.0;
    assert_eq!(on_a, number.is_multiple_of(2), "the task moved with the batch");
    assert_eq!(
        used(a).unwrap_or(0.0) + used(b).unwrap_or(0.0),
        1000.0,
        "it is on one node"
    );
    reply.metadata.unwrap_or_default().revision.unwrap_or_default().number
}

/// Revision of one Score: the node without the task is the better one, in every generation.
fn check_scores(wire: &BlockingClients) -> u64 {
    let query = pb::ScoreRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")]); 2],
        ..pb::ScoreRequest::default()
    };
    let reply = wire.score(query).unwrap();
    let items = reply.result.unwrap_or_default().items;
    assert_eq!(items[0], items[1], "both items are of one state");
    assert_eq!(items[0].nodes.clone().unwrap_or_default().names, ["a", "b"]);
    reply.metadata.unwrap_or_default().revision.unwrap_or_default().number
}

#[test]
fn readers_see_complete_batches_in_order() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 1, generation(0))).unwrap();
    let (done, seen) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 4]);
    std::thread::scope(|scope| {
        for (reader, seen) in seen.iter().enumerate() {
            let (done, wire) = (&done, wire.clone());
            scope.spawn(move || {
                let (mut last, mut revisions) = (0, BTreeSet::new());
                while !done.load(Ordering::Relaxed) {
                    let number = if reader % 2 == 0 {
                        check_listing(&wire)
                    } else {
                        check_scores(&wire)
                    };
                    assert!(number >= last, "a reader never goes back");
                    last = number;
                    revisions.insert(number);
                    seen.store(revisions.len(), Ordering::Relaxed);
                }
            });
        }
        // Long enough for every reader to see many states, and bounded.
        let (mut sequence, mut number) = (1, 0);
        let mut send = |batch: &dyn Fn(u64) -> pb::Batch| {
            sequence += 1;
            wire.apply_batch(batch(sequence)).unwrap()
        };
        while number < 20_000 && seen.iter().any(|seen| seen.load(Ordering::Relaxed) < 40) {
            number += 1;
            let mut cluster = generation(number);
            if number % 3 == 0 {
                // Full sync in two parts: the first must not be visible.
                let first = pb::Cluster {
                    nodes: cluster.nodes.split_off(1),
                    ..pb::Cluster::default()
                };
                send(&|sequence| full_sync_part("s", sequence, 1, first.clone()));
                send(&|sequence| pb::Batch {
                    part: 2,
                    ..full_sync("s", sequence, cluster.clone())
                });
            } else {
                send(&|sequence| delta("s", sequence, cluster.clone()));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    for seen in &seen {
        assert!(seen.load(Ordering::Relaxed) >= 40, "the readers ran beside the writer");
    }
}
