//! A queue that holds less than it deserves, below a queue that is full: what it reclaims is given back there, too.

use pumice::server::pb;
use serde_json::{Value, json};

use super::simulated;
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, job, node, queue, task, task_on_node};

/// Numbers of tasks placed, waiting and evicted.
fn counts(outcome: &Value) -> Value {
    ["placed", "waiting", "evicted"]
        .iter()
        .map(|field| outcome["tasks"][*field].clone())
        .collect()
}

#[test]
fn a_leaf_reclaims_below_a_full_ancestor() {
    for policy in ["policy.yaml", "upstream.yaml"] {
        for cluster in ["cluster.yaml", "no-capability.yaml"] {
            let outcome = simulated("full-ancestor", cluster, policy);
            assert_eq!(counts(&outcome), json!([1, 1, 1]), "{policy} {cluster}");
        }
    }
}

/// Queue of a tree, with what it deserves.
fn below(parent: &str, name: &str, deserved: &str) -> pb::Queue {
    pb::Queue {
        parent: parent.to_owned(),
        deserved: Some(amounts(&[("cpu", deserved)])),
        ..queue(name)
    }
}

/// Tree of three levels below the root: `own` is empty, and `rich`, `cousin` or `far` holds four of eight cores.
fn tree(holder: &str) -> pb::Cluster {
    let mut held = task("ns/held-0", "ns/held", &[("cpu", "4")]);
    held.uid = "held".to_owned();
    let running = pb::Job {
        phase: pb::JobPhase::Running.into(),
        ..job("ns/held", holder)
    };
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "8"), ("memory", "9Gi"), ("pods", "9")])],
        queues: vec![
            queue("root"),
            below("root", "org", "4"),
            below("org", "dept", "4"),
            below("dept", "own", "2"),
            below("dept", "rich", "2"),
            below("org", "other-dept", "2"),
            below("other-dept", "cousin", "2"),
            below("root", "other-org", "2"),
            below("other-org", "far", "2"),
        ],
        jobs: vec![running, job("ns/new", "own")],
        tasks: vec![task_on_node(held, pb::TaskStatus::Running, "n")],
        ..pb::Cluster::default()
    }
}

/// Result of `SelectVictims` about a task of `own`: whether its queue may reclaim, and after how many victims it fits.
fn asked(server: &EmbeddedServer, cluster: pb::Cluster) -> (Option<bool>, Option<u32>) {
    let candidates = cluster.tasks.clone();
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster),
        policy_document: "actions: reclaim\ntiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]\n".to_owned(),
        ..pb::InlineSnapshot::default()
    };
    let request = pb::SelectVictimsRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
            ..pb::EvaluationRef::default()
        }),
        kind: pb::VictimKind::Reclaim.into(),
        groups: vec![pb::VictimGroup {
            preemptor: Some(task("ns/new-0", "ns/new", &[("cpu", "2")])),
            node: "n".to_owned(),
            candidates,
            ..pb::VictimGroup::default()
        }],
        ..pb::SelectVictimsRequest::default()
    };
    let item = server
        .wire
        .select_victims(request)
        .unwrap()
        .result
        .unwrap()
        .items
        .remove(0);
    (item.queue_may_reclaim, item.fits_after)
}

/// Cluster with a change of one queue.
fn with(mut cluster: pb::Cluster, name: &str, change: impl FnOnce(&mut pb::Queue)) -> pb::Cluster {
    change(cluster.queues.iter_mut().find(|queue| queue.name == name).unwrap());
    cluster
}

fn limit(cluster: pb::Cluster, name: &str, cores: &str) -> pb::Cluster {
    with(cluster, name, |queue| {
        queue.capability = Some(amounts(&[("cpu", cores)]));
    })
}

#[test]
fn at_each_level_a_full_queue_counts_what_its_victims_give_back() {
    let server = EmbeddedServer::start();
    for (full, holder) in [("dept", "rich"), ("org", "cousin"), ("root", "far")] {
        let cluster = || limit(tree(holder), full, "4");
        assert_eq!(
            asked(&server, cluster()),
            (Some(true), Some(1)),
            "{full} is full of {holder}"
        );
        let spared = with(cluster(), holder, |queue| queue.reclaimable = Some(false));
        assert_eq!(
            asked(&server, spared),
            (Some(false), None),
            "{holder} gives nothing back"
        );
        let guaranteed = with(cluster(), holder, |queue| {
            queue.guarantee = Some(amounts(&[("cpu", "3")]));
        });
        let (may, fits) = asked(&server, guaranteed);
        assert_eq!((may, fits), (Some(false), None), "{holder} is guaranteed three");
        let deserving = with(cluster(), holder, |queue| {
            queue.deserved = Some(amounts(&[("cpu", "4")]));
        });
        assert_eq!(
            asked(&server, deserving),
            (Some(false), None),
            "{holder} deserves all of it"
        );
        let closed = with(cluster(), full, |queue| queue.state = pb::QueueState::Closed.into());
        assert_eq!(asked(&server, closed), (Some(false), None), "{full} is closed");
    }
}

#[test]
fn no_victim_makes_room_in_the_own_queue_or_above_elsewhere() {
    let server = EmbeddedServer::start();
    for holder in ["rich", "cousin", "far"] {
        let own = limit(tree(holder), "own", "1");
        assert_eq!(asked(&server, own), (Some(false), None), "own may hold one core");
    }
    // The victims are not below the queue that is full.
    for (full, holder) in [("dept", "cousin"), ("dept", "far"), ("org", "far")] {
        let short = limit(tree(holder), full, "1");
        assert_eq!(asked(&server, short), (Some(false), None), "{full} may hold one core");
    }
    let satisfied = with(tree("rich"), "own", |queue| {
        queue.deserved = Some(amounts(&[("cpu", "1")]));
    });
    assert_eq!(
        asked(&server, satisfied),
        (Some(false), Some(0)),
        "it fits, and deserves no more"
    );
}
