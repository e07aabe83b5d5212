//! Limits of a queue on groups of nodes, over gRPC.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{job, node, queue, task, task_on_node};

const LIMITS: &str = "volcano.sh/nodegroup-resource-limits";

/// A node of group `a` and one of group `b`, each with 8 of cpu; a queue that may use both, with these limits, and holds 1 of
/// cpu on the first.
fn cluster(limits: &str) -> pb::Cluster {
    let of_group = |name: &str| pb::Node {
        labels: [("volcano.sh/nodegroup-name".to_owned(), name.to_owned())].into(),
        ..node(name, &[("cpu", "8"), ("pods", "110")])
    };
    let lists = pb::NodeGroupLists {
        required: ["a", "b"].map(str::to_owned).into(),
        preferred: Vec::new(),
    };
    pb::Cluster {
        nodes: vec![of_group("a"), of_group("b")],
        queues: vec![pb::Queue {
            annotations: [(LIMITS.to_owned(), limits.to_owned())].into(),
            affinity: Some(Box::new(pb::QueueAffinity {
                node_group_affinity: Some(lists),
                node_group_anti_affinity: None,
            })),
            ..queue("q")
        }],
        jobs: vec![job("x/j", "q")],
        tasks: vec![
            task_on_node(task("x/r", "x/j", &[("cpu", "1")]), pb::TaskStatus::Running, "a"),
            task("x/p", "x/j", &[("cpu", "1")]),
        ],
        ..pb::Cluster::default()
    }
}

fn against(limits: &str, compatibility: &str) -> pb::EvaluationRef {
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster(limits)),
        policy_document: "actions: allocate\ntiers: [{plugins: [{name: nodegroup}, {name: binpack}]}]\n".to_owned(),
        compatibility: compatibility.to_owned(),
        ..pb::InlineSnapshot::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        ..pb::EvaluationRef::default()
    }
}

/// Nodes that take the waiting task, and the codes of the rejections.
fn filtered(server: &EmbeddedServer, limits: &str, compatibility: &str) -> (Vec<String>, Vec<String>) {
    let reply = server.wire.filter(pb::FilterRequest {
        against: Some(against(limits, compatibility)),
        tasks: vec![pb::Task {
            name: "x/p".to_owned(),
            ..pb::Task::default()
        }],
        ..pb::FilterRequest::default()
    });
    let item = reply.unwrap().result.unwrap().items.remove(0);
    let codes = item.rejections.into_iter().map(|own| own.reason.unwrap().code);
    (item.fit.unwrap_or_default().names, codes.collect())
}

#[test]
fn a_queue_passes_no_limit_of_a_node_group() {
    let server = EmbeddedServer::start();
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let exceeded = || (names(&["b"]), names(&["NodeGroupLimitExceeded"]));
    for compatibility in ["corrected", "volcano-ed72c7c81"] {
        for (limits, expected) in [
            (r#"{"a": {"cpu": "1500m"}}"#, exceeded()),
            (r#"{"a": {"cpu": 1, "memory": "0"}, "b": {"cpu": "1"}}"#, exceeded()),
            (r#"{"a": {"pods": "1"}}"#, exceeded()),
            (r#"{"a": {"cpu": "2", "pods": "2"}}"#, (names(&["a", "b"]), names(&[]))),
            (r#"{"a": null, "c": {"cpu": "0"}}"#, (names(&["a", "b"]), names(&[]))),
            ("null", (names(&["a", "b"]), names(&[]))),
            (
                r#"{"a": {"cpu": "x"}}"#,
                (names(&[]), names(&["NodeGroupLimitsInvalid"])),
            ),
            ("{a: 1}", (names(&[]), names(&["NodeGroupLimitsInvalid"]))),
        ] {
            assert_eq!(
                filtered(&server, limits, compatibility),
                expected,
                "{compatibility} {limits}"
            );
        }
    }
    // Earlier releases do not read it.
    for limits in [r#"{"a": {"cpu": "1500m"}}"#, "{a: 1}"] {
        let open = (names(&["a", "b"]), names(&[]));
        assert_eq!(filtered(&server, limits, "volcano-1.15.1"), open);
    }
}

#[test]
fn tasks_that_are_placed_together_share_a_limit_of_a_node_group() {
    let server = EmbeddedServer::start();
    for (limits, on_first) in [(r#"{"a": {"cpu": "3"}}"#, 2), (r#"{"a": {"cpu": "5"}}"#, 4)] {
        let reply = server.wire.place(pb::PlaceRequest {
            against: Some(against(limits, "corrected")),
            effect: pb::PlaceEffect::Preview.into(),
            groups: vec![pb::TaskGroup {
                task: Some(pb::Task {
                    job: "x/j".to_owned(),
                    requests: Some(crate::support::records::amounts(&[("cpu", "1")])),
                    ..pb::Task::default()
                }),
                count: Some(6),
                ..pb::TaskGroup::default()
            }],
            ..pb::PlaceRequest::default()
        });
        let mut result = reply.unwrap().result.unwrap();
        let nodes = result.groups.remove(0).allocated.unwrap_or_default().names;
        let first = nodes.iter().filter(|node| *node == "a").count();
        assert_eq!((first, nodes.len()), (on_first, 6), "{limits}: {nodes:?}");
    }
}
