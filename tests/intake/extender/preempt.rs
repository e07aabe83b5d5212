//! Preempt: nodes stay whose victims the policy permits, and all of them where it has no say.

use serde_json::{Value, json};

use super::{Scheduler, bound, load, node, pod, reload};
use crate::support::EmbeddedServer;

fn group(name: &str, least: u32) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name, "namespace": "team"},
        "spec": {"minMember": least, "queue": "default"}, "status": {"phase": "Inqueue"},
    })
}

fn asked(preemptor: &Value) -> Value {
    let victims = |names: &[&str]| -> Value {
        let pods: Vec<Value> = names.iter().map(|name| json!({"UID": format!("uid-{name}")})).collect();
        json!({"Pods": pods, "NumPDBViolations": 1})
    };
    json!({"Pod": preemptor, "NodeNameToVictims": null, "NodeNameToMetaVictims": {
        "n1": victims(&["whole-0"]), "n2": victims(&["spare-0"]), "n3": victims(&["unseen"]),
    }})
}

fn start_server(policy: &str) -> (EmbeddedServer, Value) {
    let server = EmbeddedServer::start();
    reload(&server, "default", policy);
    let cpu = |amount: &str| json!({"cpu": amount, "memory": "1Gi"});
    let preemptor = pod("urgent", &cpu("2"), "mine");
    let mut objects: Vec<Value> = ["n1", "n2", "n3"]
        .iter()
        .map(|name| node(name, &json!({"cpu": "4", "memory": "8Gi"})))
        .collect();
    objects.push(json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}));
    objects.extend([group("mine", 1), group("whole", 2), group("spare", 1)]);
    for (name, on) in [
        ("whole-0", "n1"),
        ("whole-1", "n2"),
        ("spare-0", "n2"),
        ("spare-1", "n1"),
    ] {
        let of = name.split('-').next().unwrap();
        objects.push(bound(&pod(name, &cpu("2"), of), on));
    }
    objects.push(preemptor.clone());
    load(&server, &objects);
    (server, preemptor)
}

#[test]
fn nodes_stay_whose_victims_the_policy_permits() {
    let (server, preemptor) = start_server("actions: allocate, preempt\ntiers:\n- plugins:\n  - name: gang\n");
    let mut scheduler = Scheduler::connect(server.http);
    let response = scheduler.ask("preempt", &asked(&preemptor));
    // Gang keeps the two of "whole" together, and permits one of "spare"; nobody knows the third victim.
    assert_eq!(
        response,
        json!({"NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "uid-spare-0"}], "NumPDBViolations": 1}}})
    );
}

#[test]
fn all_nodes_stay_where_the_policy_has_no_say() {
    let (server, preemptor) = start_server("actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n");
    let mut scheduler = Scheduler::connect(server.http);
    let body = asked(&preemptor);
    let unchanged = json!({"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]});
    assert_eq!(scheduler.ask("preempt", &body), unchanged, "no plugin for victims");
    let (server, _) = start_server("actions: allocate, preempt\ntiers:\n- plugins:\n  - name: gang\n");
    let mut scheduler = Scheduler::connect(server.http);
    let alone = asked(&pod("alone", &json!({"cpu": "1"}), ""));
    assert_eq!(scheduler.ask("preempt", &alone), unchanged, "a pod without a job");
}

#[test]
fn whole_victims_are_answered_by_uid() {
    let (server, preemptor) = start_server("actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n");
    let mut scheduler = Scheduler::connect(server.http);
    let victim = bound(&pod("spare-0", &json!({"cpu": "2"}), "spare"), "n2");
    let body = json!({"Pod": preemptor, "NodeNameToMetaVictims": null, "NodeNameToVictims": {"n2": {"Pods": [victim], "NumPDBViolations": 0}}});
    assert_eq!(
        scheduler.ask("preempt", &body),
        json!({"NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "uid-spare-0"}], "NumPDBViolations": 0}}})
    );
}
