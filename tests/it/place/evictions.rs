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
                target: Some(pb::evaluation_ref::Target::Inline(inline)),
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
