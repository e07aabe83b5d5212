//! Priorities by class and groups by labels, whatever order their objects come in.

use pumice::server::pb;
use serde_json::{Value, json};

use super::{cpu, objects, pod, task};
use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync};
use crate::support::wire::BlockingClients;

fn class(name: &str, value: i32, is_default: bool) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value, "globalDefault": is_default,
    })
}

fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team"}, "spec": spec,
    })
}

fn job_priority(wire: &BlockingClients) -> i32 {
    let jobs = wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
    jobs[0].job.as_ref().unwrap().priority
}

/// Priorities of the job and of the pod.
fn priorities(wire: &BlockingClients) -> (i32, i32) {
    (job_priority(wire), task(wire, "team/p").task.unwrap().priority)
}

fn removal(sequence: u64, class: &str) -> pb::Batch {
    pb::Batch {
        remove: Some(pb::Removals {
            priority_classes: vec![class.to_owned()],
            ..pb::Removals::default()
        }),
        ..delta("s", sequence, pb::Cluster::default())
    }
}

#[test]
fn a_changed_class_changes_the_priorities_of_earlier_batches() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let mut spec = cpu("1");
    spec["priorityClassName"] = json!("high");
    let first = objects(&[group("g", &json!({"priorityClassName": "high"})), pod("p", &spec)]);
    wire.apply_batch(full_sync("s", 1, first)).unwrap();
    assert_eq!(priorities(wire), (0, 0), "the class is not there yet");
    wire.apply_batch(delta("s", 2, objects(&[class("high", 7, false)])))
        .unwrap();
    assert_eq!(priorities(wire), (7, 7));
    wire.apply_batch(delta(
        "s",
        3,
        objects(&[class("high", 9, false), class("low", -3, true)]),
    ))
    .unwrap();
    assert_eq!(priorities(wire), (9, 9));
    wire.apply_batch(removal(4, "high")).unwrap();
    assert_eq!(priorities(wire), (-3, -3), "the global default");
    wire.apply_batch(removal(5, "low")).unwrap();
    assert_eq!(priorities(wire), (0, 0), "as if there had never been a class");
    // A full sync without the class forgets it, and one with it alone brings it back.
    let whole = objects(&[
        pod("p", &spec),
        group("g", &json!({"priorityClassName": "high"})),
        class("high", 4, false),
    ]);
    wire.apply_batch(full_sync("s", 6, whole)).unwrap();
    assert_eq!(priorities(wire), (4, 4), "the class stands behind its pods");
    let without = objects(&[pod("p", &spec), group("g", &json!({"priorityClassName": "high"}))]);
    wire.apply_batch(full_sync("s", 7, without)).unwrap();
    assert_eq!(priorities(wire), (0, 0));
}

#[test]
fn a_class_of_another_source_counts_and_stays_its_own() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let mut spec = cpu("1");
    spec["priorityClassName"] = json!("high");
    wire.apply_batch(full_sync("classes", 1, objects(&[class("high", 7, false)])))
        .unwrap();
    let own = objects(&[
        group("g", &json!({"priorityClassName": "high"})),
        pod("p", &spec),
        class("high", 1, false),
    ]);
    let outcome = wire.apply_batch(full_sync("s", 1, own)).unwrap();
    assert_eq!(outcome.refused.len(), 1, "{outcome:?}");
    assert!(outcome.refused[0].message.contains("classes"), "{outcome:?}");
    assert_eq!(priorities(wire), (7, 7));
    wire.forget_source(pb::ForgetSourceRequest {
        source: "classes".to_owned(),
        force: true,
    })
    .unwrap();
    assert_eq!(priorities(wire), (0, 0));
}

#[test]
fn a_pod_with_a_number_of_its_own_keeps_it() {
    let server = EmbeddedServer::start();
    let mut spec = cpu("1");
    (spec["priorityClassName"], spec["priority"]) = (json!("high"), json!(3));
    let put = objects(&[pod("p", &spec), group("g", &json!({})), class("high", 7, true)]);
    server.wire.apply_batch(full_sync("s", 1, put)).unwrap();
    assert_eq!(priorities(&server.wire), (7, 3), "the job has the global default");
}

#[test]
fn groups_of_tasks_follow_the_policies_of_their_job() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let policies = |name: &str| {
        json!({"subGroupPolicy": [
            {"name": "other", "labelSelector": {"matchLabels": {"app": "none"}}, "matchLabelKeys": ["rack"]},
            {"name": name, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
             "matchLabelKeys": ["rack"], "subGroupSize": 2, "minSubGroups": 1},
        ]})
    };
    let mut labelled = pod("p", &cpu("1"));
    labelled["metadata"]["labels"] = json!({"app": "web", "rack": "r7"});
    labelled["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": "g"});
    let sub_group = |wire: &BlockingClients| task(wire, "team/p").task.unwrap().sub_group;
    wire.apply_batch(full_sync("s", 1, objects(std::slice::from_ref(&labelled))))
        .unwrap();
    assert_eq!(sub_group(wire), "");
    wire.apply_batch(delta("s", 2, objects(&[group("g", &policies("racks"))])))
        .unwrap();
    assert_eq!(sub_group(wire), "racks/r7");
    wire.apply_batch(delta("s", 3, objects(&[group("g", &policies("rooms"))])))
        .unwrap();
    assert_eq!(sub_group(wire), "rooms/r7");
    labelled["metadata"]["labels"]["rack"] = json!("r8");
    wire.apply_batch(delta("s", 4, objects(std::slice::from_ref(&labelled))))
        .unwrap();
    assert_eq!(sub_group(wire), "rooms/r8");
    let listed = wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs[0]
        .job
        .clone()
        .unwrap();
    assert_eq!(listed.sub_group_policies[1].match_label_keys, ["rack"]);
    // What is listed can be sent again.
    let again = pb::Cluster {
        jobs: vec![listed.clone()],
        ..pb::Cluster::default()
    };
    wire.apply_batch(delta("s", 5, again)).unwrap();
    assert_eq!(
        wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs[0].job,
        Some(listed)
    );
    assert_eq!(sub_group(wire), "rooms/r8");
}

#[test]
fn an_assumed_placement_survives_a_changed_class() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let mut spec = cpu("1");
    spec["priorityClassName"] = json!("high");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}});
    wire.apply_batch(full_sync("s", 1, objects(&[node, pod("p", &spec)])))
        .unwrap();
    let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
    let placed = crate::support::records::session_ref(
        &session,
        0,
        vec![pb::session_change::Change::Allocate(pb::TaskPlacement {
            task: "team/p".to_owned(),
            node: "n".to_owned(),
            ..pb::TaskPlacement::default()
        })],
    );
    let Some(pb::evaluation_ref::Target::Session(step)) = placed.target else {
        panic!("a session")
    };
    wire.commit_session(pb::CommitSessionRequest {
        session: Some(step),
        ..pb::CommitSessionRequest::default()
    })
    .unwrap();
    assert!(task(wire, "team/p").assumed);
    wire.apply_batch(delta("s", 2, objects(&[class("high", 7, false)])))
        .unwrap();
    let stored = task(wire, "team/p");
    let record = stored.task.unwrap();
    assert_eq!((stored.assumed, record.priority, &*record.node), (true, 7, "n"));
}
