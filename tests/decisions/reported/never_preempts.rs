//! Pods with `preemptionPolicy: Never`, of their own or of their priority class.

use pumice::server::pb;
use serde_json::json;

use super::{reload, simulated};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, job, node, queue, task, task_on_node};

#[test]
fn a_pod_of_a_class_that_never_preempts_waits() {
    let outcome = simulated("never-preempts", "cluster.yaml", "policy.yaml");
    let counts = ["waiting", "evicted"].map(|field| outcome["tasks"][field].clone());
    assert_eq!(json!(counts), json!([1, 0]));
}

/// Cluster of one node that is full of a task of low priority, and a task of high priority of a class.
fn full_node(class: pb::PreemptionPolicy, own: pb::PreemptionPolicy) -> pb::Cluster {
    let mut low = task_on_node(
        task("ns/low-0", "ns/low", &[("cpu", "4")]),
        pb::TaskStatus::Running,
        "n",
    );
    low.uid = "low".to_owned();
    let high = pb::Task {
        priority: 9,
        priority_class_name: "high".to_owned(),
        preemption_policy: own.into(),
        ..task("ns/high-0", "ns/high", &[("cpu", "2")])
    };
    let running = |name: &str, priority| pb::Job {
        phase: pb::JobPhase::Running.into(),
        priority,
        ..job(name, "q")
    };
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "4"), ("memory", "9Gi"), ("pods", "9")])],
        queues: vec![queue("q")],
        jobs: vec![running("ns/low", 1), running("ns/high", 9)],
        tasks: vec![low, high],
        priority_classes: vec![pb::PriorityClass {
            name: "high".to_owned(),
            value: 9,
            preemption_policy: class.into(),
            ..pb::PriorityClass::default()
        }],
        ..pb::Cluster::default()
    }
}

#[test]
fn no_victim_is_selected_for_a_task_that_never_preempts() {
    use pb::PreemptionPolicy::{LowerPriority, Never, Unspecified};
    let server = EmbeddedServer::start();
    let cases = [
        (Unspecified, Unspecified, 1),
        (Never, Unspecified, 0),
        (Never, LowerPriority, 1),
        (Unspecified, Never, 0),
    ];
    let mut sequence = 0;
    for mode in ["corrected", "upstream"] {
        reload(&server, "[{name: priority}, {name: gang}]", mode);
        for (class, own, victims) in cases {
            sequence += 1;
            let cluster = full_node(class, own);
            server
                .wire
                .apply_batch(full_sync("s", sequence, cluster.clone()))
                .unwrap();
            let listed = server.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
            let stored = listed
                .into_iter()
                .filter_map(|own| own.task)
                .find(|task| task.name == "ns/high-0");
            assert_eq!(stored.unwrap().preemption_policy(), own);
            let request = pb::SelectVictimsRequest {
                kind: pb::VictimKind::Preempt.into(),
                groups: vec![pb::VictimGroup {
                    preemptor: Some(cluster.tasks[1].clone()),
                    node: "n".to_owned(),
                    candidates: vec![cluster.tasks[0].clone()],
                    ..pb::VictimGroup::default()
                }],
                ..Default::default()
            };
            let item = server
                .wire
                .select_victims(request)
                .unwrap()
                .result
                .unwrap()
                .items
                .remove(0);
            assert_eq!(item.victims.len(), victims, "{mode} {class:?} {own:?}: {item:?}");
            assert_eq!(item.fits_after, (victims > 0).then_some(1));
            let warned = item
                .warnings
                .iter()
                .filter(|own| own.reason == "TASK_NEVER_PREEMPTS")
                .count();
            assert_eq!(warned, 1 - victims);
        }
    }
}
