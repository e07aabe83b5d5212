//! Questions about pods as they are.

use pumice::server::pb;
use serde_json::json;

use super::{cpu, objects, pod};
use crate::support::EmbeddedServer;
use crate::support::records::full_sync;

fn carried(object: &serde_json::Value) -> pb::Task {
    pb::Task {
        object: object.to_string().into(),
        ..pb::Task::default()
    }
}

fn cluster() -> pb::Cluster {
    let node = |name: &str, cpu: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "9"}},
        })
    };
    objects(&[
        node("small", "2"),
        node("large", "16"),
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}),
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "known", "namespace": "team"},
               "spec": {"queue": "default", "minMember": 1}}),
    ])
}

#[test]
fn filter_score_and_place_take_pods() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 1, cluster())).unwrap();
    let asked = pod("p", &cpu("4"));
    let filtered = wire
        .filter(pb::FilterRequest {
            tasks: vec![
                carried(&asked),
                carried(&pod("q", &cpu("1"))),
                carried(&pod("r", &cpu("x"))),
            ],
            ..pb::FilterRequest::default()
        })
        .unwrap();
    let items = filtered.result.unwrap().items;
    assert_eq!((items[0].fit_count, items[1].fit_count), (1, 2));
    let problem = items[2].problem.clone().unwrap();
    assert_eq!(
        problem.field,
        "tasks[2].object.spec.containers[0].resources.requests[\"cpu\"]"
    );
    assert!(problem.message.starts_with("Pod team/r: "), "{problem:?}");
    let scored = wire
        .score(pb::ScoreRequest {
            tasks: vec![carried(&asked)],
            with_filter: true,
            ..pb::ScoreRequest::default()
        })
        .unwrap();
    assert!(scored.result.unwrap().items[0].problem.is_none());
    let placed = wire
        .place(pb::PlaceRequest {
            groups: vec![pb::TaskGroup {
                task: Some(carried(&asked)),
                count: Some(4),
                ..pb::TaskGroup::default()
            }],
            ..pb::PlaceRequest::default()
        })
        .unwrap();
    let text = format!("{:?}", placed.result);
    assert!(text.contains("large") && !text.contains("small"), "{text}");
}

#[test]
fn admit_takes_pods_and_pod_groups() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    wire.apply_batch(full_sync("s", 1, cluster())).unwrap();
    let group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team"},
        "spec": {"queue": "default", "minMember": 1, "minResources": {"cpu": "4"}},
    });
    let subject = |subject| pb::AdmitSubject {
        subject: Some(subject),
        ..pb::AdmitSubject::default()
    };
    let broken = pb::Job {
        object: b"{".to_vec(),
        ..pb::Job::default()
    };
    let group = pb::Job {
        object: group.to_string().into(),
        ..pb::Job::default()
    };
    let admitted = wire
        .admit(pb::AdmitRequest {
            items: vec![
                subject(pb::admit_subject::Subject::Task(pb::Task {
                    job: "team/known".to_owned(),
                    ..carried(&pod("p", &cpu("4")))
                })),
                subject(pb::admit_subject::Subject::Job(group)),
                subject(pb::admit_subject::Subject::Job(broken)),
            ],
            ..pb::AdmitRequest::default()
        })
        .unwrap();
    let items = admitted.result.unwrap().items;
    assert!(items[0].problem.is_none() && items[1].problem.is_none(), "{items:?}");
    assert_eq!(items[2].problem.as_ref().unwrap().field, "items[2].job.object");
}

#[test]
fn a_pod_gets_the_result_of_its_record() {
    let server = EmbeddedServer::start();
    let inline = |tasks| pb::FilterRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(pb::InlineSnapshot {
                cluster: Some(cluster()),
                ..pb::InlineSnapshot::default()
            }))),
            ..pb::EvaluationRef::default()
        }),
        tasks,
        ..pb::FilterRequest::default()
    };
    let text = std::fs::read_to_string("tests/data/constraints.json").unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pods = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["kind"] == "Pod");
    let mut compared = 0;
    for pod in pods {
        let mut import =
            pumice_kubernetes::import::ClusterImport::new(pumice_kubernetes::import::AmountRules::default());
        import.read("pod", &pod.to_string()).unwrap();
        let record = import.finish().cluster.tasks;
        let result = |tasks| {
            let mut result = server.wire.filter(inline(tasks)).unwrap().result.unwrap();
            for item in &mut result.items {
                // A file is whole; a pod alone does not say whether it has owners.
                item.not_evaluated.retain(|own| own.name != "ownerSelector");
            }
            result
        };
        assert_eq!(result(vec![carried(pod)]), result(record), "{pod}");
        compared += 1;
    }
    assert!(compared > 0);
}
