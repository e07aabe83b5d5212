//! Objects that cannot be used: each is refused alone, says why, and its last good record goes on counting.

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::{Value, json};

use super::{cpu, objects, pod, task, tasks};
use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, hypothetical_task};

fn raw(list: &[&[u8]]) -> pb::Cluster {
    pb::Cluster {
        objects: list.iter().map(|bytes| bytes.to_vec()).collect(),
        ..pb::Cluster::default()
    }
}

/// Head of a running pod on a node, up to its containers.
const HEAD: &str =
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"team"},"spec":{"nodeName":"n","#;

/// Texts of the pod that cannot be used, each with a part of the reason.
fn broken() -> Vec<(Vec<u8>, &'static str)> {
    let with = |rest: &str| format!("{HEAD}{rest}").into_bytes();
    let phase = r#""status":{"phase":"Running"}}"#;
    let containers = |request: &str| {
        with(&format!(
            r#""containers":[{{"name":"c","resources":{{"requests":{{"cpu":{request}}}}}}}]}},{phase}"#
        ))
    };
    let mut not_utf8 = with(r#""schedulerName":""#);
    not_utf8.extend([0xff, 0xfe, b'"', b'}']);
    not_utf8.extend(format!(",{phase}").into_bytes());
    let deep = |levels: usize| {
        with(&format!(
            r#""affinity":{}{}}},{phase}"#,
            r#"{"nodeAffinity":"#.repeat(levels) + "1",
            "}".repeat(levels)
        ))
    };
    let many = with(&format!(r#""tolerations":[{}0]}},{phase}"#, "0,".repeat(1 << 20)));
    vec![
        (containers(r#""abc""#), "quantity"),
        (containers(r#""-1""#), "negative"),
        (containers("true"), "quantity"),
        (containers("[]"), "quantity"),
        (containers(r#""-1e9999999999""#), "quantity"),
        (containers(&format!(r#""{}x""#, "1".repeat(5_000))), "quantity"),
        (with(&format!(r#""nodeName":"m"}},{phase}"#)), "stands twice"),
        (with(&format!(r#""priority":1e99}},{phase}"#)), "spec.priority"),
        (with(&format!(r#""containers":{{}}}},{phase}"#)), "spec.containers"),
        (with(&format!(r#""containers":[7]}},{phase}"#)), "spec.containers[0]"),
        (with(&format!(r#""tolerations":"all"}},{phase}"#)), "spec.tolerations"),
        (with(r#""containers":["#), "is not JSON"),
        (not_utf8, "is not JSON"),
        (deep(100), "nested deeper"),
        (deep(100_000), "nested deeper"),
        (many, "more than 1048576 values"),
    ]
}

#[test]
fn a_pod_that_cannot_be_read_keeps_its_last_good_record() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}});
    let mut good = pod("a", &cpu("3"));
    (good["spec"]["nodeName"], good["status"]["phase"]) = (json!("n"), json!("Running"));
    wire.apply_batch(full_sync("s", 1, objects(&[node.clone(), good.clone()])))
        .unwrap();
    let mut sequence = 1;
    for (bytes, reason) in broken() {
        for is_full in [false, true] {
            sequence += 1;
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
            let mut put = raw(&[&bytes]);
            let batch = if is_full {
                put.objects.push(node.to_string().into_bytes());
                full_sync("s", sequence, put)
            } else {
                delta("s", sequence, put)
            };
            let outcome = wire.apply_batch(batch).unwrap();
            let [problem] = &outcome.refused[..] else {
                panic!("one is refused: {outcome:?} {text}")
            };
            assert_eq!(problem.reason, "OBJECT_UNREADABLE", "{text}");
            assert!(problem.field.starts_with("batch.put.objects[0]"), "{problem:?}");
            assert!(problem.message.starts_with("Pod team/a: "), "{problem:?}");
            let whole = format!("{} {}", problem.field, problem.message);
            assert!(whole.contains(reason), "{reason}: {whole}");
            assert!(whole.len() < 4_000, "{} bytes", whole.len());
            let stored = task(wire, "team/a");
            assert_eq!(stored.task.unwrap().requests.unwrap().items["cpu"], "3", "{text}");
            assert_eq!(stored.invalid.len(), 1, "{text}");
        }
    }
    wire.apply_batch(delta("s", sequence + 1, objects(&[good]))).unwrap();
    assert_eq!(task(wire, "team/a").invalid, []);
}

/// A container with these resources.
fn container(resources: &Value) -> Value {
    json!({"name": "c", "resources": resources})
}

/// Specifications of pods with amounts that no record holds.
fn specs_with_unread_amounts() -> Vec<Value> {
    let small = container(&json!({"requests": {"cpu": "100m"}}));
    let beside = |limits: Value| json!({"containers": [small, container(&json!({"limits": limits}))]});
    let digits = "123456789".repeat(5);
    vec![
        beside(json!({"cpu": "10P"})),
        beside(json!({"cpu": digits, "memory": "18E"})),
        beside(json!({"example.com/x": "1e9999999999"})),
        beside(json!({"cpu": "9".repeat(5_000)})),
        beside(json!({"koordinator.sh/gpu-core": "150"})),
        beside(json!({"volcano.sh/vgpu-number": "65"})),
        beside(json!({"nvidia.com/gpumem": "1e30"})),
        json!({"containers": [container(&json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "10P"}}))]}),
        json!({"containers": [small], "initContainers": [container(&json!({"limits": {"cpu": "10P"}}))]}),
        json!({"containers": [small], "initContainers": [
            {"name": "c", "restartPolicy": "Always", "resources": {"limits": {"cpu": "10P"}}},
        ]}),
        json!({"containers": [small], "resources": {"limits": {"cpu": "10P"}}}),
        json!({"containers": [small], "overhead": {"memory": "10E"}}),
        json!({"containers": [small, container(&json!({"requests": {"memory": "5Ei"}})), container(&json!({"requests": {"memory": "5Ei"}}))]}),
    ]
}

fn running(name: &str, spec: &Value) -> Value {
    let mut made = pod(name, spec);
    (made["spec"]["nodeName"], made["status"]["phase"]) = (json!("n"), json!("Running"));
    made
}

/// A running pod with many annotations, and long ones that say what it belongs to.
fn running_with_much(name: &str, container: &Value) -> Value {
    let mut many = running(name, &json!({"containers": [container]}));
    many["metadata"]["annotations"] = (0..60_000).map(|number| (format!("a{number}"), json!(""))).collect();
    let long = "x".repeat(600);
    many["metadata"]["annotations"]["volcano.sh/task-spec"] = json!(long);
    many["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(long);
    many
}

/// Text that any user may write on a running pod does not close a node.
#[test]
fn a_running_pod_counts_whatever_its_user_writes() {
    let server = EmbeddedServer::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "99"}}});
    let small = container(&json!({"requests": {"cpu": "100m"}}));
    let mut all = vec![node];
    let unread = specs_with_unread_amounts();
    let count = unread.len();
    all.extend(
        unread
            .into_iter()
            .enumerate()
            .map(|(number, spec)| running(&format!("p{number}"), &spec)),
    );
    all.push(running_with_much("many", &small));
    let mut waiting = pod(
        "waiting",
        &json!({"containers": [small, container(&json!({"limits": {"cpu": "10P"}}))]}),
    );
    waiting["metadata"]["uid"] = json!("w");
    all.push(waiting);
    for (number, rules) in (1..).zip([
        pb::PodRules::Unspecified,
        pb::PodRules::Kubernetes,
        pb::PodRules::Volcano,
    ]) {
        let mut put = objects(&all);
        put.pod_rules = rules.into();
        let outcome = server.wire.apply_batch(full_sync("s", number, put)).unwrap();
        assert_eq!(outcome.refused, [], "{rules:?}");
        let stored = tasks(&server.wire);
        assert_eq!(stored.len(), count + 2, "{rules:?}");
        for task in stored.into_iter().map(|own| own.task.unwrap()) {
            let expected = if task.name == "team/many" {
                vec![]
            } else {
                vec!["resources".to_owned()]
            };
            assert_eq!(task.unevaluated_fields, expected, "{rules:?} {}", task.name);
        }
        let result = |task: pb::Task| {
            let query = pb::FilterRequest {
                tasks: vec![task],
                ..pb::FilterRequest::default()
            };
            server.wire.filter(query).unwrap().result.unwrap().items.remove(0)
        };
        // Each of them takes a tenth of a core.
        let rest = 8_000 - 100 * (count + 1);
        let fits = |milli: usize| result(hypothetical_task(&[("cpu", &format!("{milli}m"))])).fit_count;
        assert_eq!((fits(rest), fits(rest + 1)), (1, 0), "{rules:?}");
        // One that waits for such amounts fits nowhere, and says so.
        let asked = result(task(&server.wire, "team/waiting").task.unwrap());
        assert_eq!(
            (asked.fit_count, &*asked.not_evaluated[0].name),
            (0, "resources"),
            "{rules:?}"
        );
    }
}

#[test]
fn a_node_whose_pod_was_never_readable_takes_no_new_tasks() {
    let server = EmbeddedServer::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}});
    // With two names of a node, it is not known which one the pod occupies.
    let of_one_node = broken().into_iter().filter(|(_, reason)| *reason != "stands twice");
    for (number, (bytes, _)) in (1..).zip(of_one_node) {
        let mut put = raw(&[&bytes]);
        put.objects.push(node.to_string().into_bytes());
        let outcome = server.wire.apply_batch(full_sync("s", number, put)).unwrap();
        assert_eq!(outcome.warnings.len(), 1, "{outcome:?}");
        assert_eq!(outcome.warnings[0].reason, "RECORD_NOT_COUNTED", "{outcome:?}");
        let nodes = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
        assert_eq!(nodes[0].invalid.len(), 1, "{nodes:?}");
    }
}

#[test]
fn one_bad_item_of_a_list_spares_the_others() {
    let server = EmbeddedServer::start();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        pod("a", &cpu("1")), 7, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}},
        pod("b", &cpu("x")), {"kind": "Pod", "apiVersion": "v1", "metadata": {}}, pod("c", &cpu("2")),
    ]});
    let outcome = server.wire.apply_batch(full_sync("s", 1, objects(&[list]))).unwrap();
    let fields: Vec<&str> = outcome.refused.iter().map(|one| &*one.field).collect();
    assert_eq!(
        fields,
        [
            "batch.put.objects[0].items[1]",
            "batch.put.objects[0].items[3].spec.containers[0].resources.requests[\"cpu\"]",
            "batch.put.objects[0].items[4].metadata.name",
        ],
        "{outcome:?}"
    );
    assert!(
        outcome
            .warnings
            .iter()
            .any(|one| one.reason == "KIND_NOT_READ" && one.field == "batch.put.objects[0].items[2]")
    );
    let names: Vec<String> = tasks(&server.wire)
        .into_iter()
        .map(|stored| stored.task.unwrap().name)
        .collect();
    assert_eq!(names, ["team/a", "team/c"]);
}

#[test]
fn bytes_that_are_no_objects_are_refused_and_change_nothing() {
    let server = EmbeddedServer::start();
    server
        .wire
        .apply_batch(full_sync("s", 1, objects(&[pod("a", &cpu("1"))])))
        .unwrap();
    let texts: [&[u8]; 10] = [
        b"",
        b"null",
        b"7",
        b"[]",
        b"\"Pod\"",
        b"k8s\0\n",
        b"{\"kind\":\"List\",\"items\":7}",
        b"{\"kind\":\"Pod\"",
        b"{} {}",
        b"\xff",
    ];
    let outcome = server.wire.apply_batch(delta("s", 2, raw(&texts))).unwrap();
    let refused = outcome.refused.len() + outcome.warnings.len();
    assert_eq!(refused, texts.len(), "{outcome:#?}");
    assert_eq!(tasks(&server.wire).len(), 1);
}

#[test]
fn a_list_counts_object_by_object_against_the_limit() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.batch_records = 3;
    let server = EmbeddedServer::with(config);
    let list = |number: usize| {
        let items: Vec<_> = (0..number).map(|i| pod(&format!("p{i}"), &cpu("1"))).collect();
        objects(&[json!({"apiVersion": "v1", "kind": "List", "items": items})])
    };
    let error = server.wire.apply_batch(full_sync("s", 1, list(4))).unwrap_err();
    assert!(error.message().contains("batch_records"), "{error:?}");
    assert!(error.message().contains("4 records"), "{error:?}");
    assert_eq!(tasks(&server.wire), []);
    server.wire.apply_batch(full_sync("s", 1, list(3))).unwrap();
    assert_eq!(tasks(&server.wire).len(), 3);
}
