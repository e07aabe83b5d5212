//! Evictions that free places and ports for a preemptor.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{node, task, task_on_node};

/// Task that takes port 80 of its node.
fn on_port(name: &str) -> pb::Task {
    let constraints = pb::PodConstraints {
        host_ports: vec![pb::HostPort {
            port: 80,
            ..pb::HostPort::default()
        }],
        ..pb::PodConstraints::default()
    };
    pb::Task {
        constraints: Some(Box::new(constraints)),
        ..task(name, "", &[("cpu", "1")])
    }
}

#[test]
fn a_preemptor_fits_after_the_pod_with_its_port_is_gone() {
    let server = EmbeddedServer::start();
    let fits_after = |pods: &str, preemptor: pb::Task, compatibility: &str| {
        let running = pb::TaskStatus::Running;
        let other = task_on_node(task("ns/other", "", &[("cpu", "1")]), running, "n");
        let holder = task_on_node(on_port("ns/holder"), running, "n");
        let cluster = pb::Cluster {
            nodes: vec![node("n", &[("cpu", "9"), ("memory", "9Gi"), ("pods", pods)])],
            tasks: vec![other.clone(), holder.clone()],
            ..pb::Cluster::default()
        };
        let inline = pb::InlineSnapshot {
            cluster: Some(cluster),
            policy_document: "actions: preempt\ntiers: [{plugins: [{name: conformance}, {name: predicates}]}]\n"
                .to_owned(),
            compatibility: compatibility.to_owned(),
            ..pb::InlineSnapshot::default()
        };
        let named = |task: &pb::Task| pb::Task {
            name: task.name.clone(),
            ..pb::Task::default()
        };
        let request = pb::SelectVictimsRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
                ..pb::EvaluationRef::default()
            }),
            kind: pb::VictimKind::Preempt.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(preemptor),
                node: "n".to_owned(),
                candidates: vec![named(&other), named(&holder)],
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
        assert_eq!(item.problem, None);
        item.fits_after
    };
    for compatibility in ["corrected", "upstream"] {
        let plain = || task("ns/new", "", &[("cpu", "1")]);
        assert_eq!(fits_after("9", plain(), compatibility), Some(0), "{compatibility}");
        assert_eq!(
            fits_after("2", plain(), compatibility),
            Some(1),
            "a place is free: {compatibility}"
        );
        assert_eq!(
            fits_after("9", on_port("ns/new"), compatibility),
            Some(2),
            "a port is free: {compatibility}"
        );
    }
}

/// Cluster with two queues of equal weight: one whose task waits, and one that has what it asks for.
fn poor_and_rich() -> pb::Cluster {
    let queue = |name: &str| pb::Queue {
        name: name.to_owned(),
        state: pb::QueueState::Open.into(),
        deserved: Some(pb::ResourceList {
            items: [("cpu".to_owned(), "4".to_owned())].into(),
        }),
        ..pb::Queue::default()
    };
    let job = |name: &str, queue: &str| pb::Job {
        name: name.to_owned(),
        queue: queue.to_owned(),
        phase: pb::JobPhase::Running.into(),
        ..pb::Job::default()
    };
    let held = task("ns/two-0", "ns/two", &[("cpu", "4")]);
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![node("n", &[("cpu", "9"), ("memory", "9Gi"), ("pods", "9")])],
        queues: vec![queue("poor"), queue("rich")],
        jobs: vec![job("ns/one", "poor"), job("ns/two", "rich")],
        tasks: vec![
            task("ns/one-0", "ns/one", &[("cpu", "2")]),
            task_on_node(held, pb::TaskStatus::Running, "n"),
        ],
        ..pb::Cluster::default()
    }
}

/// State of the queues under a policy of one plugin.
fn under(plugin: &str) -> pb::EvaluationRef {
    let inline = pb::InlineSnapshot {
        cluster: Some(poor_and_rich()),
        policy_document: format!("actions: reclaim\ntiers: [{{plugins: [{{name: {plugin}}}]}}]\n"),
        ..pb::InlineSnapshot::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        ..pb::EvaluationRef::default()
    }
}

#[test]
fn a_queue_may_reclaim_up_to_what_it_deserves() {
    let server = EmbeddedServer::start();
    let may_reclaim = |kind: pb::VictimKind, plugin: &str, job: &str| {
        let request = pb::SelectVictimsRequest {
            against: Some(under(plugin)),
            kind: kind.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(task("ns/new", job, &[("cpu", "2")])),
                ..pb::VictimGroup::default()
            }],
            ..pb::SelectVictimsRequest::default()
        };
        let reply = server.wire.select_victims(request).unwrap();
        reply.result.unwrap().items.remove(0).queue_may_reclaim
    };
    let reclaim = pb::VictimKind::Reclaim;
    assert_eq!(may_reclaim(reclaim, "capacity", "ns/one"), Some(true));
    assert_eq!(may_reclaim(reclaim, "capacity", "ns/two"), Some(false));
    assert_eq!(may_reclaim(pb::VictimKind::Preempt, "capacity", "ns/two"), None);
    assert_eq!(may_reclaim(reclaim, "conformance", "ns/two"), None);
}

#[test]
fn a_queue_with_its_part_is_overused() {
    let server = EmbeddedServer::start();
    let overused = |plugin: &str, asked: &[&str]| {
        let request = pb::OrderRequest {
            against: Some(under(plugin)),
            queues: Some(pb::NameSet::default()),
            plugins: asked.iter().map(|name| (*name).to_owned()).collect(),
            ..pb::OrderRequest::default()
        };
        let ranks = server.wire.order(request).unwrap().result.unwrap().queues;
        ranks
            .into_iter()
            .map(|rank| (rank.name, rank.overused))
            .collect::<Vec<_>>()
    };
    let named = |of: [Option<bool>; 2]| vec![("poor".to_owned(), of[0]), ("rich".to_owned(), of[1])];
    // Of nine cores 4.5 are each queue's part by weight; the rich one asks for the four that it has.
    assert_eq!(overused("proportion", &[]), named([Some(false), Some(true)]));
    assert_eq!(overused("proportion", &["proportion"]), named([None, None]));
    assert_eq!(overused("conformance", &[]), named([None, None]));
}

#[test]
fn a_group_of_a_shuffle_has_neither_preemptor_nor_node() {
    let server = EmbeddedServer::start();
    let problem = |group: pb::VictimGroup| {
        let inline = pb::InlineSnapshot {
            cluster: Some(pb::Cluster {
                nodes: vec![node("n", &[("cpu", "9")])],
                ..pb::Cluster::default()
            }),
            ..pb::InlineSnapshot::default()
        };
        let request = pb::SelectVictimsRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
                ..pb::EvaluationRef::default()
            }),
            kind: pb::VictimKind::Shuffle.into(),
            groups: vec![group],
            ..pb::SelectVictimsRequest::default()
        };
        let result = server.wire.select_victims(request).unwrap().result.unwrap();
        let found = result.items.into_iter().next()?.problem?;
        Some((found.reason, found.field))
    };
    assert_eq!(problem(pb::VictimGroup::default()), None);
    let with_preemptor = pb::VictimGroup {
        preemptor: Some(task("ns/new", "", &[("cpu", "1")])),
        ..pb::VictimGroup::default()
    };
    let with_node = pb::VictimGroup {
        node: "n".to_owned(),
        ..pb::VictimGroup::default()
    };
    for (group, field) in [(with_preemptor, "groups[0].preemptor"), (with_node, "groups[0].node")] {
        assert_eq!(
            problem(group),
            Some(("PREEMPTOR_UNNEEDED".to_owned(), field.to_owned()))
        );
    }
}
