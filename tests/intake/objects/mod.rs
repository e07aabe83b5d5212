//! Objects of the Kubernetes API in the place of records: in batches, in inline clusters, and in questions.

mod cost;
mod hostile;
mod owners;
mod queries;
mod relations;

use pumice::server::pb;
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use serde_json::{Value, json};

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync};
use crate::support::wire::BlockingClients;

/// Dumps of `kubectl get … -o json`.
const DUMPS: [&str; 2] = ["tests/data/dump.json", "tests/data/constraints.json"];

/// Objects as a cluster that carries them.
fn objects(list: &[Value]) -> pb::Cluster {
    pb::Cluster {
        objects: list.iter().map(|object| object.to_string().into_bytes()).collect(),
        ..pb::Cluster::default()
    }
}

fn pod(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
        "spec": spec,
        "status": {"phase": "Pending"},
    })
}

/// Specification of one container that requests so much cpu.
fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]})
}

fn tasks(wire: &BlockingClients) -> Vec<pb::StoredTask> {
    wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks
}

fn task(wire: &BlockingClients, name: &str) -> pb::StoredTask {
    let found = tasks(wire)
        .into_iter()
        .find(|stored| stored.task.as_ref().unwrap().name == name);
    found.unwrap_or_else(|| panic!("no task {name}"))
}

/// All that the server lists, without what says who sent it.
fn listed(wire: &BlockingClients) -> String {
    let nodes = wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    // Slots are numbered in the order in which the nodes came.
    let nodes = nodes.into_iter().map(|status| pb::NodeStatus { slot: 0, ..status });
    let nodes: Vec<_> = nodes.collect();
    let queues = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
    let jobs = wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
    let jobs = jobs.into_iter().map(|mut status| {
        // Files give the numbers, objects the relations.
        let job = status.job.as_mut().unwrap();
        job.priority_class_name = None;
        for policy in &mut job.sub_group_policies {
            (policy.label_selector, policy.match_label_keys) = (None, Vec::new());
        }
        status
    });
    let tasks = tasks(wire).into_iter().map(|mut stored| {
        let task = stored.task.as_mut().unwrap();
        task.priority_from_class = false;
        // Files are whole; objects may come without the owners of their pods.
        task.unevaluated_fields.retain(|field| field != "ownerSelector");
        stored
    });
    let (jobs, tasks): (Vec<_>, Vec<_>) = (jobs.collect(), tasks.collect());
    format!("{nodes:#?}\n{queues:#?}\n{jobs:#?}\n{tasks:#?}")
}

#[test]
fn a_dump_as_it_is_gives_the_state_that_its_records_give() {
    for dump in DUMPS {
        let text = std::fs::read_to_string(dump).unwrap();
        let (by_records, by_objects, one_by_one) = (
            EmbeddedServer::start(),
            EmbeddedServer::start(),
            EmbeddedServer::start(),
        );
        let mut import = ClusterImport::new(AmountRules::default());
        import.read(dump, &text).unwrap();
        let outcome = by_records
            .wire
            .apply_batch(full_sync("s", 1, import.finish().cluster))
            .unwrap();
        assert_eq!(outcome.refused, [], "{dump}");
        let whole = pb::Cluster {
            objects: vec![text.clone().into_bytes()],
            ..pb::Cluster::default()
        };
        let outcome = by_objects.wire.apply_batch(full_sync("s", 1, whole)).unwrap();
        assert_eq!(outcome.refused, [], "{dump}");
        let list: Value = serde_json::from_str(&text).unwrap();
        // The other order, so that pods come before their groups and classes.
        let mut items = list["items"].as_array().unwrap().clone();
        items.reverse();
        let outcome = one_by_one.wire.apply_batch(full_sync("s", 1, objects(&items))).unwrap();
        assert_eq!(outcome.refused, [], "{dump}");
        let expected = listed(&by_records.wire);
        assert!(expected.contains("Task"), "{dump} has pods: {expected}");
        assert_eq!(listed(&by_objects.wire), expected, "{dump}");
        let tasks = |wire: &BlockingClients| format!("{:?}", tasks(wire));
        assert_eq!(tasks(&one_by_one.wire), tasks(&by_objects.wire), "{dump}");
    }
}

#[test]
fn records_may_carry_their_objects() {
    let server = EmbeddedServer::start();
    let pod = pod("a", &cpu("2"));
    let put = pb::Cluster {
        nodes: vec![pb::Node {
            object: json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}})
                .to_string()
                .into(),
            ..pb::Node::default()
        }],
        tasks: vec![pb::Task {
            name: "team/a".to_owned(),
            object: pod.to_string().into(),
            node: "n".to_owned(),
            status: pb::TaskStatus::Binding.into(),
            ..pb::Task::default()
        }],
        ..pb::Cluster::default()
    };
    let outcome = server.wire.apply_batch(full_sync("s", 1, put)).unwrap();
    assert_eq!((outcome.refused, outcome.warnings), (vec![], vec![]));
    let stored = task(&server.wire, "team/a").task.unwrap();
    assert_eq!(
        (&*stored.node, stored.status(), &*stored.uid),
        ("n", pb::TaskStatus::Binding, "uid-a")
    );
    assert_eq!(stored.requests.unwrap().items["cpu"], "2");
    let wrong = pb::Cluster {
        tasks: vec![
            pb::Task {
                name: "team/b".to_owned(),
                object: pod.to_string().into(),
                ..pb::Task::default()
            },
            pb::Task {
                object: pod.to_string().into(),
                gated: true,
                ..pb::Task::default()
            },
        ],
        ..pb::Cluster::default()
    };
    let refused = server.wire.apply_batch(delta("s", 2, wrong)).unwrap().refused;
    let reasons: Vec<(&str, &str)> = refused.iter().map(|one| (&*one.field, &*one.reason)).collect();
    assert_eq!(
        reasons,
        [
            ("batch.put.tasks[0].name", "OBJECT_AND_FIELDS"),
            ("batch.put.tasks[1].object", "OBJECT_AND_FIELDS")
        ]
    );
}

#[test]
fn the_scheduler_or_the_source_chooses_the_rules() {
    // Volcano's default priority is 1, that of Kubernetes 0.
    let spec = |scheduler: Option<&str>| {
        let mut spec = cpu("1");
        spec["schedulerName"] = json!(scheduler);
        spec
    };
    let list = [
        pod("none", &spec(None)),
        pod("own", &spec(Some("volcano"))),
        pod("koord", &spec(Some("koord-scheduler"))),
    ];
    for (rules, expected) in [
        (pb::PodRules::Unspecified, [0, 0, 1]),
        (pb::PodRules::Kubernetes, [0, 0, 0]),
        (pb::PodRules::Volcano, [1, 1, 1]),
    ] {
        let server = EmbeddedServer::start();
        let put = pb::Cluster {
            pod_rules: rules.into(),
            ..objects(&list)
        };
        server.wire.apply_batch(full_sync("s", 1, put)).unwrap();
        let priorities: Vec<i32> = tasks(&server.wire)
            .into_iter()
            .map(|stored| stored.task.unwrap().priority)
            .collect();
        assert_eq!(priorities, expected, "koord, none, own by {rules:?}");
    }
    let server = EmbeddedServer::start();
    let put = pb::Cluster {
        pod_rules: 77,
        ..objects(&list)
    };
    let error = server.wire.apply_batch(full_sync("s", 1, put)).unwrap_err();
    assert!(error.message().contains("batch.put.pod_rules: 77"), "{error:?}");
}

#[test]
fn objects_are_removed_by_name_and_by_incarnation() {
    let server = EmbeddedServer::start();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5});
    let put = objects(&[pod("a", &cpu("1")), pod("b", &cpu("1")), class]);
    server.wire.apply_batch(full_sync("s", 1, put)).unwrap();
    let gone = |kind: &str, namespace: &str, name: &str, uid: &str| pb::ObjectReference {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let remove = |sequence, objects| pb::Batch {
        remove: Some(pb::Removals {
            objects,
            ..pb::Removals::default()
        }),
        ..delta("s", sequence, pb::Cluster::default())
    };
    let first = remove(
        2,
        vec![gone("Pod", "team", "a", "another"), gone("Pod", "team", "b", "uid-b")],
    );
    server.wire.apply_batch(first).unwrap();
    let names: Vec<String> = tasks(&server.wire)
        .into_iter()
        .map(|stored| stored.task.unwrap().name)
        .collect();
    assert_eq!(
        names,
        ["team/a"],
        "the incarnation that was removed is not the stored one"
    );
    server
        .wire
        .apply_batch(remove(
            3,
            vec![gone("Pod", "team", "a", ""), gone("PriorityClass", "", "high", "")],
        ))
        .unwrap();
    assert_eq!(tasks(&server.wire), []);
    let error = server
        .wire
        .apply_batch(remove(4, vec![gone("Secret", "team", "a", "")]))
        .unwrap_err();
    assert!(error.message().contains("batch.remove.objects[0].kind"), "{error:?}");
}
