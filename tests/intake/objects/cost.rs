//! Cost of objects beside that of records: bytes on the wire, and processor time of the server per pod.
#![expect(clippy::print_stdout, reason = "the lines are the report")]

use prost_reflect::prost::Message as _;
use pumice::server::pb;
use pumice_kubernetes::object::{AmountRules, ObjectKind, ObjectLimits, ObjectRecord, read_json_of};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Number of pods that are read.
const PODS: usize = 400;

/// Pod as an API server lists it: `noise` adds what no scheduler reads.
fn listed_pod(number: usize, noise: bool) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-6d4cf56db6-{number:05}"), "namespace": "shop", "uid": format!("7c0d4a4e-0d1b-4c1a-9a53-{number:012}"),
            "creationTimestamp": "2026-11-01T08:00:00Z", "resourceVersion": "123456",
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"scheduling.k8s.io/group-name": "web", "volcano.sh/task-spec": "front"},
        },
        "spec": {
            "schedulerName": "volcano", "nodeName": "node-17", "priority": 0,
            "containers": [{
                "name": "web", "image": "registry.example.com/web:1.2.3",
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
            }],
            "nodeSelector": {"pool": "web"},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T08:00:09Z"}]},
    });
    if noise {
        pod["metadata"]["managedFields"] = json!([{
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-11-01T08:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:env": {".": {}}, "f:image": {}, "f:resources": {".": {}}}}}},
        }]);
        pod["spec"]["containers"][0]["env"] = (0..20)
            .map(|n| json!({"name": format!("SETTING_{n}"), "value": "some value"}))
            .collect();
        pod["status"]["containerStatuses"] = json!([{
            "name": "web", "ready": true, "restartCount": 0, "image": "registry.example.com/web:1.2.3",
            "imageID": "registry.example.com/web@sha256:0123456789abcdef", "state": {"running": {"startedAt": "2026-11-01T08:00:08Z"}},
        }]);
    }
    pod
}

fn record(bytes: &[u8]) -> pb::Task {
    let read = read_json_of(ObjectKind::Pod, bytes, AmountRules::default(), ObjectLimits::default()).unwrap();
    let ObjectRecord::Task(task, ..) = read else {
        panic!("a task")
    };
    task
}

/// Least time of a run over all items, per item, in microseconds.
fn micros<T>(items: &[T], mut run: impl FnMut(&T)) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        items.iter().for_each(&mut run);
        least = least.min(start.elapsed().as_secs_f64() * 1e6 / items.len() as f64);
    }
    least
}

#[test]
#[ignore = "prints times: cargo test --test it objects::cost -- --ignored --nocapture"]
fn objects_cost_little_more_than_records() {
    println!(
        "| pod | bytes of the object | bytes of the record | decode the record | read and derive the object | the same by a whole JSON value |"
    );
    for (name, noise) in [("trimmed by a client", false), ("as the API server lists it", true)] {
        let pods: Vec<Vec<u8>> = (0..PODS)
            .map(|number| listed_pod(number, noise).to_string().into_bytes())
            .collect();
        let records: Vec<Vec<u8>> = pods.iter().map(|pod| record(pod).encode_to_vec()).collect();
        let decode = micros(&records, |bytes| drop(pb::Task::decode(bytes.as_slice()).unwrap()));
        let derive = micros(&pods, |bytes| drop(record(bytes)));
        let whole = micros(&pods, |bytes| {
            let value: Value = serde_json::from_slice(bytes).unwrap();
            drop(pumice_kubernetes::object::read_value(ObjectKind::Pod, &value, AmountRules::default()).unwrap());
        });
        println!(
            "| {name} | {} | {} | {decode:.1} µs | {derive:.1} µs | {whole:.1} µs |",
            pods[0].len(),
            records[0].len()
        );
    }
}
