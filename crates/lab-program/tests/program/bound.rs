//! Bounds of what devices could be used, of a running server.

use pumice::server::pb;
use serde_json::Value;

use super::{err, lab, out};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, job, node, queue, task, task_on_node};

fn device_node(name: &str) -> pb::Node {
    pb::Node {
        devices: Some(pb::NodeDevices {
            model: "G2".to_owned(),
            count: 4,
            memory_mib: 100_000,
        }),
        ..node(name, &[("cpu", "64"), ("memory", "512Gi"), ("pods", "110")])
    }
}

fn shared(mut task: pb::Task, milli: u32, assigned: &[u32]) -> pb::Task {
    let constraints = pb::PodConstraints {
        devices: Some(pb::DeviceRequest {
            count: 1,
            milli,
            assigned: assigned.to_vec(),
            ..pb::DeviceRequest::default()
        }),
        ..pb::PodConstraints::default()
    };
    task.constraints = Some(Box::new(constraints));
    task
}

#[test]
fn the_bound_counts_running_and_waiting_tasks() {
    let server = EmbeddedServer::start();
    let running = task_on_node(task("runs", "j", &[("cpu", "1")]), pb::TaskStatus::Running, "busy");
    let cluster = pb::Cluster {
        nodes: vec![device_node("busy"), device_node("idle")],
        queues: vec![queue("default")],
        jobs: vec![job("j", "default")],
        tasks: vec![
            shared(running, 500, &[0]),
            shared(task("waits", "j", &[("cpu", "1")]), 250, &[]),
        ],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("kube", 1, cluster)).unwrap();
    let address = server.grpc.to_string();
    let text = lab(&["bound", "--server", &address]).output().unwrap();
    let said = format!("{}{}", out(&text), err(&text));
    assert_eq!(text.status.code(), Some(0), "{said}");
    assert!(said.contains("8 devices of 2 nodes: 6.25 % allocated"), "{said}");
    assert!(
        said.contains("at most 9.38 % with 1 waiting task that may be placed"),
        "{said}"
    );
    let json = lab(&["bound", "--server", &address, "-o", "json"]).output().unwrap();
    let bounds: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&bounds["allocatedMilli"], &bounds["withWaiting"]["milli"]),
        (&500.into(), &750.into()),
        "{bounds}"
    );
}
