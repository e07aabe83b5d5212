//! Volcano's extender protocol: a whole cycle with the bodies that a real vc-scheduler sent, and what happens when a session cannot
//! be opened.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{Scheduler, load, reload};
use crate::support::EmbeddedServer;

const POLICY: &str = "actions: enqueue, allocate, preempt, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: proportion\n  - name: binpack\n    arguments:\n      binpack.resources: nvidia.com/gpu\n";

/// Body of a verb, as it was recorded.
fn recorded(verb: &str) -> Vec<u8> {
    let path = format!("tests/data/extender/volcano-{verb}.json");
    std::fs::read(&path).unwrap_or_else(|_| {
        let packed = std::fs::read(format!("{path}.gz")).unwrap();
        let mut body = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut body).unwrap();
        body
    })
}

fn ask(scheduler: &mut Scheduler, verb: &str, body: &[u8]) -> Value {
    let (status, response) = scheduler.post(&format!("/volcano/vc/{verb}"), body);
    assert_eq!(status, 200, "{verb}: {response}");
    serde_json::from_str(&response).unwrap()
}

fn object(version: &str, kind: &str, value: &Value) -> Value {
    let mut object = value.clone();
    (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
    object
}

/// Server that watches what the bodies are about: nodes, a queue, the gang, and those who preempt.
fn server() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    reload(&server, "default", POLICY);
    let open: Value = serde_json::from_slice(&recorded("onSessionOpen")).unwrap();
    let job: Value = serde_json::from_slice(&recorded("jobEnqueueable")).unwrap();
    let victims: Value = serde_json::from_slice(&recorded("preemptable")).unwrap();
    let nodes = open["Nodes"].as_object().unwrap().values();
    let mut objects: Vec<Value> = nodes.map(|node| object("v1", "Node", &node["Node"])).collect();
    objects.push(json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
        "spec": {"weight": 1}, "status": {"state": "Open"},
    }));
    objects.push(object(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        &job["job"]["PodGroup"],
    ));
    for name in ["low", "high"] {
        objects.push(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": 1, "queue": "default"}, "status": {"phase": "Inqueue"},
        }));
    }
    let tasks = job["job"]["Tasks"].as_object().unwrap().values();
    objects.extend(tasks.map(|task| object("v1", "Pod", &task["Pod"])));
    objects.push(object("v1", "Pod", &victims["evictor"]["Pod"]));
    for victim in victims["evictees"].as_array().unwrap() {
        let mut pod = object("v1", "Pod", &victim["Pod"]);
        pod["spec"]["nodeName"] = victim["NodeName"].clone();
        pod["status"]["phase"] = json!("Running");
        objects.push(pod);
    }
    load(&server, &objects);
    server
}

#[test]
fn a_recorded_cycle_is_answered() {
    let server = server();
    let mut scheduler = Scheduler::connect(server.http);
    let mut said = |verb: &str| ask(&mut scheduler, verb, &recorded(verb));
    assert_eq!(said("onSessionOpen"), json!({}));
    assert_eq!(said("jobEnqueueable"), json!({"status": 1}), "proportion permits");
    assert_eq!(said("jobEnqueued"), json!({}));
    assert_eq!(said("queueOverused"), json!({"overused": false}));
    assert_eq!(said("predicate"), json!({"status": "", "code": 0}));
    let scores = said("prioritize");
    let nodes = scores["nodeScore"].as_object().unwrap();
    assert!(
        nodes.len() > 900 && nodes.values().all(Value::is_number),
        "{} nodes",
        nodes.len()
    );
    assert_eq!(said("jobReady"), json!({"status": false}), "none of four has a node");
    assert_eq!(said("allocateFunc"), json!({"errorMessage": ""}));
    let used = |server: &EmbeddedServer| {
        server
            .wire
            .list_sessions(pumice::server::pb::ListSessionsRequest::default())
            .unwrap()
            .sessions
    };
    assert_eq!(used(&server).len(), 1);
    assert_eq!(said("jobReady"), json!({"status": false}), "one of four has a node");
    let preemptable = said("preemptable");
    assert_eq!(preemptable["status"], 1);
    let victims = preemptable["victims"].as_array().unwrap();
    let sent: Value = serde_json::from_slice(&recorded("preemptable")).unwrap();
    assert!(
        !victims.is_empty()
            && victims
                .iter()
                .all(|victim| sent["evictees"].as_array().unwrap().contains(victim))
    );
    let again = ask(&mut scheduler, "deallocateFunc", &recorded("allocateFunc"));
    assert_eq!(again, json!({"errorMessage": ""}));
    assert_eq!(ask(&mut scheduler, "onSessionClose", b"{}"), json!({}));
    assert_eq!(used(&server).len(), 0);
}

#[test]
fn a_gang_whose_tasks_have_nodes_is_ready() {
    let server = server();
    let mut scheduler = Scheduler::connect(server.http);
    ask(&mut scheduler, "onSessionOpen", &recorded("onSessionOpen"));
    let body = recorded("jobReady");
    let job: Value = serde_json::from_slice(&body).unwrap();
    for task in job["job"]["Tasks"].as_object().unwrap().values() {
        assert_eq!(ask(&mut scheduler, "jobReady", &body), json!({"status": false}));
        let mut task = task.clone();
        task["NodeName"] = json!("kwok-00007");
        let response = ask(
            &mut scheduler,
            "allocateFunc",
            json!({"task": task}).to_string().as_bytes(),
        );
        assert_eq!(response, json!({"errorMessage": ""}));
    }
    assert_eq!(ask(&mut scheduler, "jobReady", &body), json!({"status": true}));
    // Another scheduler has a session of its own.
    let (status, response) = scheduler.post("/volcano/other/jobReady", &body);
    assert_eq!((status, response.as_str()), (200, "{\"status\":false}"));
}

#[test]
fn a_session_that_could_not_be_opened_refuses_or_abstains() {
    let server = server();
    let mut scheduler = Scheduler::connect(server.http);
    let mut said = |verb: &str, body: &[u8]| {
        let (status, response) = scheduler.post(&format!("/volcano/vc/policy/missing/{verb}"), body);
        assert_eq!(status, 200, "{verb}: {response}");
        serde_json::from_str::<Value>(&response).unwrap()
    };
    // Any other status makes Volcano schedule without a policy.
    assert_eq!(said("onSessionOpen", b"{}"), json!({}));
    let predicate = said("predicate", &recorded("predicate"));
    assert!(
        predicate["code"] == 1 && predicate["status"].as_str().unwrap().contains("missing"),
        "{predicate}"
    );
    let scores = said("prioritize", &recorded("prioritize"));
    assert!(
        scores["nodeScore"].is_null() && scores["errorMessage"].as_str().unwrap().contains("missing"),
        "{scores}"
    );
    for verb in ["preemptable", "reclaimable"] {
        assert_eq!(
            said(verb, &recorded(verb)),
            json!({"status": 0, "victims": []}),
            "{verb} abstains"
        );
    }
    assert_eq!(
        said("jobEnqueueable", &recorded("jobEnqueueable")),
        json!({"status": -1})
    );
    assert_eq!(
        said("queueOverused", &recorded("queueOverused")),
        json!({"overused": true})
    );
    assert_eq!(said("jobReady", &recorded("jobReady")), json!({"status": false}));
    let event = said("allocateFunc", &recorded("allocateFunc"));
    assert!(event["errorMessage"].as_str().unwrap().contains("missing"), "{event}");
    assert_eq!(said("onSessionClose", b"{}"), json!({}));
    let (status, page) = scheduler.post("/volcano/vc/filter", b"{}");
    assert!(status == 404 && page.contains("jobEnqueueable"), "{page}");
}

#[test]
fn an_open_that_cannot_be_read_whole_is_answered_and_poisons() {
    let mut config = pumice::config::ServerConfig::on_free_ports();
    config.limits.edge.extender_body_bytes = 1_000;
    let server = EmbeddedServer::with(config);
    let mut scheduler = Scheduler::connect(server.http);
    let (status, response) = scheduler.post("/volcano/vc/onSessionOpen", &vec![b' '; 2_000]);
    assert_eq!((status, response.as_str()), (200, "{}"));
    let mut scheduler = Scheduler::connect(server.http);
    let (status, response) = scheduler.post("/volcano/vc/queueOverused", b"{\"queue\":{\"Name\":\"q\"}}");
    assert_eq!((status, response.as_str()), (200, "{\"overused\":true}"));
    let (_, response) = scheduler.post("/volcano/vc/allocateFunc", b"{\"task\":{\"Name\":\"a\"}}");
    assert!(response.contains("extender_body_bytes"), "{response}");
}

/// Best nodes of a prioritize, by score.
fn best(scheduler: &mut Scheduler) -> (usize, Vec<String>) {
    let response = ask(scheduler, "prioritize", &recorded("prioritize"));
    let scores = response["nodeScore"].as_object().unwrap();
    let most = scores
        .values()
        .map(|score| score.as_f64().unwrap())
        .fold(f64::MIN, f64::max);
    let best = scores.iter().filter(|(_, score)| score.as_f64() == Some(most));
    (scores.len(), best.map(|(name, _)| name.clone()).collect())
}

/// Body of onSessionOpen in which 7 of the 8 GPUs of a node are used.
fn open_with_used_node(name: &str) -> Vec<u8> {
    let mut open: Value = serde_json::from_slice(&recorded("onSessionOpen")).unwrap();
    open["Nodes"][name]["Used"]["ScalarResources"] = json!({"nvidia.com/gpu": 7_000});
    open.to_string().into_bytes()
}

#[test]
fn used_amounts_of_nodes_are_those_of_the_scheduler() {
    let server = server();
    let mut scheduler = Scheduler::connect(server.http);
    ask(&mut scheduler, "onSessionOpen", &recorded("onSessionOpen"));
    assert!(best(&mut scheduler).1.len() > 900, "all nodes are alike");
    // The server's own state says that the node is empty.
    ask(&mut scheduler, "onSessionOpen", &open_with_used_node("kwok-00321"));
    assert_eq!(best(&mut scheduler).1, ["kwok-00321"]);
    let gpus = server
        .wire
        .list_nodes(pumice::server::pb::ListNodesRequest::default())
        .unwrap();
    assert!(
        !format!("{gpus:?}").contains("7000"),
        "the state of others is the same as before"
    );
    ask(&mut scheduler, "onSessionOpen", &recorded("onSessionOpen"));
    assert!(
        best(&mut scheduler).1.len() > 900,
        "the next session has its own amounts"
    );
}

#[test]
fn nodes_that_the_server_does_not_know_are_those_of_the_scheduler() {
    let server = EmbeddedServer::start();
    reload(&server, "default", POLICY);
    let mut scheduler = Scheduler::connect(server.http);
    ask(&mut scheduler, "onSessionOpen", &open_with_used_node("kwok-00321"));
    let predicate = ask(&mut scheduler, "predicate", &recorded("predicate"));
    assert_eq!(predicate, json!({"status": "", "code": 0}));
    let (scored, best) = best(&mut scheduler);
    assert!(scored > 900, "{scored}");
    assert_eq!(best, ["kwok-00321"]);
}
