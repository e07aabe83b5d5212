//! Extender protocols: schedulers that ask by HTTP and JSON.

mod bind;
mod check;
mod failures;
mod filter;
mod preempt;
mod quotas;
mod recorded;
mod volcano;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use pumice::server::pb;
use serde_json::{Value, json};

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync};

/// Connection of a scheduler, which it keeps.
struct Scheduler {
    stream: BufReader<TcpStream>,
}

impl Scheduler {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Status and body of the response to a request with a body.
    fn post(&mut self, path: &str, body: &[u8]) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: pumice\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Status and body of the response to these bytes.
    fn send(&mut self, request: &[u8]) -> (u16, String) {
        self.stream.get_mut().write_all(request).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(number) = header.strip_prefix("content-length: ") {
                length = number.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    fn ask(&mut self, verb: &str, body: &Value) -> Value {
        let (status, response) = self.post(&format!("/kube-scheduler/{verb}"), body.to_string().as_bytes());
        assert_eq!(status, 200, "{response}");
        serde_json::from_str(&response).unwrap()
    }
}

fn node(name: &str, amounts: &Value) -> Value {
    let mut allocatable = amounts.clone();
    allocatable["pods"] = json!("110");
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": name}}, "status": {"allocatable": allocatable}})
}

/// Pending pod of namespace "team"; with a group if one is named.
fn pod(name: &str, requests: &Value, group: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Pending"},
    });
    if !group.is_empty() {
        pod["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": group});
    }
    pod
}

/// The pod, bound to a node.
fn bound(pod: &Value, node: &str) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({"phase": "Running"});
    pod
}

fn cluster(objects: &[Value]) -> pb::Cluster {
    pb::Cluster {
        objects: objects.iter().map(|object| object.to_string().into_bytes()).collect(),
        ..pb::Cluster::default()
    }
}

fn load(server: &EmbeddedServer, objects: &[Value]) {
    let outcome = server
        .wire
        .apply_batch(full_sync("cluster", 1, cluster(objects)))
        .unwrap();
    assert_eq!((outcome.refused, outcome.warnings), (vec![], vec![]));
}

fn change(server: &EmbeddedServer, sequence: u64, objects: &[Value]) {
    let outcome = server
        .wire
        .apply_batch(delta("cluster", sequence, cluster(objects)))
        .unwrap();
    assert_eq!(
        (outcome.refused, outcome.warnings, outcome.resync),
        (vec![], vec![], None)
    );
}

fn by_names(pod: &Value, names: &[&str]) -> Value {
    json!({"Pod": pod, "Nodes": null, "NodeNames": names})
}

fn reload(server: &EmbeddedServer, name: &str, document: &str) {
    let request = pb::ReloadPolicyRequest {
        name: name.to_owned(),
        document: document.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(request).unwrap();
}
