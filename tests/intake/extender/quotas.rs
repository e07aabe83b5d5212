//! Quotas at full speed: kube-scheduler asks for the next pod before anybody sees the last one bound.

use std::sync::atomic::{AtomicUsize, Ordering};

use pumice_engine::short_lock::ShortLock;
use serde_json::{Value, json};

use super::{Scheduler, bound, by_names, change, load, node, pod, reload};
use crate::support::EmbeddedServer;

const PODS: usize = 200;
const QUOTA: usize = 50;
const POLICY: &str =
    "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: proportion\n  - name: binpack\n";

fn start_server() -> (EmbeddedServer, Vec<Value>) {
    let server = EmbeddedServer::start();
    reload(&server, "default", POLICY);
    let pods: Vec<Value> = (0..PODS)
        .map(|number| pod(&format!("p{number:03}"), &json!({"cpu": "1", "memory": "1Gi"}), "group"))
        .collect();
    let mut objects: Vec<Value> = ["n1", "n2", "n3"]
        .iter()
        .map(|name| node(name, &json!({"cpu": "100", "memory": "400Gi"})))
        .collect();
    objects.push(json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"},
        "spec": {"weight": 1, "capability": {"cpu": QUOTA.to_string(), "memory": "400Gi"}}, "status": {"state": "Open"},
    }));
    objects.push(json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"},
        "spec": {"minMember": 10, "queue": "team"}, "status": {"phase": "Inqueue"},
    }));
    objects.extend_from_slice(&pods);
    objects.push(pod("free", &json!({"cpu": "60"}), ""));
    objects.push(pod("early", &json!({"cpu": "1"}), "unseen-group"));
    load(&server, &objects);
    (server, pods)
}

/// True if the pod is offered a node; otherwise every node is refused for its queue.
fn is_offered(scheduler: &mut Scheduler, pod: &Value) -> bool {
    let response = scheduler.ask("filter", &by_names(pod, &["n1", "n2", "n3"]));
    assert_eq!(response["Error"], "", "{response}");
    let offered = !response["NodeNames"].as_array().unwrap().is_empty();
    let mut refused: Vec<&Value> = Vec::new();
    for field in ["FailedNodes", "FailedAndUnresolvableNodes"] {
        refused.extend(response[field].as_object().unwrap().values());
    }
    assert_eq!(refused.len(), if offered { 0 } else { 3 }, "{response}");
    for reason in refused {
        assert!(reason.as_str().unwrap().starts_with("proportion: "), "{reason}");
    }
    offered
}

#[test]
fn no_quota_is_exceeded_while_nobody_sees_the_pods_bound() {
    let (server, pods) = start_server();
    let (next, offered) = (AtomicUsize::new(0), ShortLock::<Vec<Value>>::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut scheduler = Scheduler::connect(server.http);
                while let Some(pod) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if is_offered(&mut scheduler, pod) {
                        offered.with(|offered| offered.push(pod.clone()));
                    }
                }
            });
        }
    });
    let offered = offered.with(std::mem::take);
    assert_eq!(offered.len(), QUOTA);
    let mut scheduler = Scheduler::connect(server.http);
    let waiting: Vec<&Value> = pods.iter().filter(|pod| !offered.contains(pod)).collect();
    let response = scheduler.ask("filter", &by_names(waiting[0], &["n1"]));
    let reason = response["FailedNodes"]["n1"].as_str().unwrap();
    assert!(reason.contains("counting pods that were offered nodes"), "{response}");
    // Half of them are bound, to other nodes than those on which they are held: each counts once.
    for (number, pod) in offered.iter().enumerate() {
        let node = ["n3", "n2", "n1"][number % 3];
        change(&server, number as u64 + 2, &[bound(pod, node)]);
        assert!(
            !is_offered(&mut scheduler, waiting[number % waiting.len()]),
            "after {number} are bound"
        );
    }
    let response = scheduler.ask("filter", &by_names(waiting[0], &["n1"]));
    let text = response.to_string();
    assert!(
        text.contains("proportion: ") && !text.contains("counting pods"),
        "{response}"
    );
    // What ends makes room for as many.
    for (number, pod) in offered[..10].iter().enumerate() {
        let mut ended = bound(pod, "n1");
        ended["status"]["phase"] = json!("Succeeded");
        change(&server, (QUOTA + number) as u64 + 2, &[ended]);
    }
    let more = waiting.iter().filter(|pod| is_offered(&mut scheduler, pod)).count();
    let response = scheduler.ask("filter", &by_names(waiting[0], &["n1"]));
    assert_eq!(more, 10, "{response}");
}

#[test]
fn quotas_are_about_pods_with_a_group() {
    let (server, _) = start_server();
    let mut scheduler = Scheduler::connect(server.http);
    let free = by_names(&pod("free", &json!({"cpu": "60"}), ""), &["n1"]);
    assert_eq!(
        scheduler.ask("filter", &free)["NodeNames"],
        json!(["n1"]),
        "it belongs to no queue"
    );
    let early = by_names(&pod("early", &json!({"cpu": "1"}), "unseen-group"), &["n1"]);
    let response = scheduler.ask("filter", &early);
    assert!(
        response["NodeNames"] == json!([]) && response.to_string().contains("team/unseen-group"),
        "{response}"
    );
}
