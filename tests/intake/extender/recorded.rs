//! Bodies as a real kube-scheduler, version 1.36, sent them.

use serde_json::{Value, json};

use super::{Scheduler, load};
use crate::support::EmbeddedServer;

fn recorded(name: &str) -> Value {
    let text = std::fs::read_to_string(format!("tests/data/extender/{name}.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Server that has the pod of a body and these nodes.
fn server(body: &Value, nodes: &[Value]) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let mut objects = nodes.to_vec();
    let mut pod = body["Pod"].clone();
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    objects.push(pod);
    for object in &mut objects {
        if object["kind"].is_null() {
            (object["apiVersion"], object["kind"]) = (json!("v1"), json!("Node"));
        }
    }
    load(&server, &objects);
    server
}

#[test]
fn recorded_bodies_are_answered() {
    let full = recorded("full-filter");
    let nodes: Vec<Value> = full["Nodes"]["items"].as_array().unwrap().clone();
    let scheduler_of = |body: &Value| {
        let server = server(body, &nodes);
        (Scheduler::connect(server.http), server)
    };
    let (mut scheduler, _server) = scheduler_of(&full);
    let response = scheduler.ask("filter", &full);
    assert_eq!(response["Nodes"]["items"], full["Nodes"]["items"]);
    let names = recorded("names-filter");
    let (mut scheduler, _server) = scheduler_of(&names);
    let response = scheduler.ask("filter", &names);
    assert_eq!(response["NodeNames"], json!(["kwok-00001"]), "{response}");
    let hosts = scheduler.ask("prioritize", &names);
    assert_eq!(hosts[0]["Host"], "kwok-00001");
    for (name, uid) in [
        ("names-preempt", "e594132c-9372-48bb-8bd0-fa574e9830a8"),
        ("full-preempt", "afbcd77c-0f47-4716-8385-bb5058815222"),
    ] {
        let body = recorded(name);
        let (mut scheduler, _server) = scheduler_of(&body);
        assert_eq!(
            scheduler.ask("preempt", &body),
            json!({"NodeNameToMetaVictims": {"kwok-00001": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}}),
            "{name}"
        );
    }
}
