//! Filter and prioritize: the answers, and the pods that are held for them.

use serde_json::{Value, json};

use super::{Scheduler, bound, by_names, change, load, node, pod, reload};
use crate::support::EmbeddedServer;

const GPU: &str = "nvidia.com/gpu";

fn mixed_cluster(server: &EmbeddedServer, more: &[Value]) {
    let gpu = json!({"cpu": "32", "memory": "128Gi", GPU: "8"});
    let cpu = json!({"cpu": "32", "memory": "128Gi"});
    let mut objects = vec![
        node("gpu-a", &gpu),
        node("gpu-b", &gpu),
        node("cpu-a", &cpu),
        node("cpu-b", &cpu),
    ];
    objects.push(bound(&pod("old", &json!({"cpu": "1", GPU: "4"}), ""), "gpu-b"));
    objects.extend_from_slice(more);
    load(server, &objects);
}

#[test]
fn gpu_tasks_gather_and_cpu_tasks_stay_off_gpu_nodes() {
    let server = EmbeddedServer::start();
    let (gpu, cpu) = (
        pod("gpu", &json!({"cpu": "1", GPU: "1"}), ""),
        pod("cpu", &json!({"cpu": "1"}), ""),
    );
    mixed_cluster(&server, &[gpu.clone(), cpu.clone()]);
    let mut scheduler = Scheduler::connect(server.http);
    let names = ["gpu-b", "cpu-b", "gpu-a", "cpu-a", "unseen"];
    for (asked, ranking) in [(&gpu, ["gpu-b", "gpu-a"]), (&cpu, ["cpu-b", "gpu-a"])] {
        let response = scheduler.ask("filter", &by_names(asked, &names));
        assert_eq!(
            response["NodeNames"],
            json!(["gpu-b", "cpu-b", "gpu-a", "cpu-a"]),
            "in the order of the request"
        );
        assert_eq!(
            response["FailedNodes"],
            json!({"unseen": "pumice: the node is not known yet"})
        );
        assert_eq!(
            (&response["FailedAndUnresolvableNodes"], &response["Error"]),
            (&json!({}), &json!(""))
        );
        let hosts = scheduler.ask("prioritize", &by_names(asked, &names[..4]));
        let scores: Vec<(&str, i64)> = hosts
            .as_array()
            .unwrap()
            .iter()
            .map(|host| (host["Host"].as_str().unwrap(), host["Score"].as_i64().unwrap()))
            .collect();
        assert_eq!(scores.iter().map(|(host, _)| *host).collect::<Vec<_>>(), names[..4]);
        assert!(scores.iter().all(|(_, score)| (0..=10).contains(score)), "{scores:?}");
        let score = |name: &str| scores.iter().find(|(host, _)| *host == name).unwrap().1;
        assert!(score(ranking[0]) > score(ranking[1]), "{scores:?}");
    }
    let (_, metrics) = server.page("/metrics");
    assert!(metrics.contains("rpc=\"kube-scheduler/filter\""), "{metrics}");
}

#[test]
fn whole_nodes_are_answered_as_they_came() {
    let server = EmbeddedServer::start();
    let mut asked = pod("a", &json!({"cpu": "1"}), "");
    asked["spec"]["nodeSelector"] = json!({"pool": "cpu-a"});
    mixed_cluster(&server, std::slice::from_ref(&asked));
    let items: Vec<Value> = ["gpu-a", "cpu-a"]
        .iter()
        .map(|name| {
            let mut item = node(name, &json!({"cpu": "32"}));
            item["metadata"]["annotations"] = json!({"note": "naïve \"quotes\" \\ and 1e400"});
            item
        })
        .collect();
    let mut scheduler = Scheduler::connect(server.http);
    let response = scheduler.ask(
        "filter",
        &json!({"Pod": asked, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null}),
    );
    assert_eq!(response["Nodes"]["items"], json!([items[1]]));
    assert_eq!(response["NodeNames"], Value::Null);
    let refused = response["FailedAndUnresolvableNodes"]["gpu-a"].as_str().unwrap();
    assert!(refused.starts_with("predicates: "), "{response}");
}

#[test]
fn a_policy_is_asked_by_its_name() {
    let server = EmbeddedServer::start();
    let asked = pod("a", &json!({"cpu": "1", GPU: "1"}), "");
    mixed_cluster(&server, std::slice::from_ref(&asked));
    reload(
        &server,
        "packed",
        "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    arguments:\n      binpack.resources: nvidia.com/gpu\n",
    );
    let mut scheduler = Scheduler::connect(server.http);
    let body = by_names(&asked, &["gpu-a", "gpu-b"]);
    let (status, response) = scheduler.post("/kube-scheduler/policy/packed/filter", body.to_string().as_bytes());
    assert_eq!(
        (status, response.contains("\"NodeNames\":[\"gpu-a\",\"gpu-b\"]")),
        (200, true),
        "{response}"
    );
    let (status, response) = scheduler.post("/kube-scheduler/policy/missing/filter", body.to_string().as_bytes());
    let response: Value = serde_json::from_str(&response).unwrap();
    assert_eq!((status, response["NodeNames"].is_null()), (200, true), "{response}");
    assert!(response["Error"].as_str().unwrap().contains("missing"), "{response}");
}

#[test]
fn a_held_pod_is_held_until_its_source_shows_more() {
    let server = EmbeddedServer::start();
    let asked = pod("a", &json!({"cpu": "2"}), "");
    mixed_cluster(&server, std::slice::from_ref(&asked));
    let mut scheduler = Scheduler::connect(server.http);
    let held = || {
        let state = &server.state.snapshot().state;
        state
            .is_assumed("team/a")
            .then(|| state.tasks().get("team/a").unwrap().record.node.to_string())
    };
    let names = ["gpu-a", "cpu-a", "cpu-b"];
    let first = scheduler.ask("filter", &by_names(&asked, &names));
    let node = held().unwrap();
    assert!(node.starts_with("cpu-"), "on the best node: {node}");
    // The scheduler asks again after an error of its own: the pod does not count against itself.
    assert_eq!(scheduler.ask("filter", &by_names(&asked, &names)), first);
    assert_eq!(held(), Some(node));
    // No longer offered there, it is held elsewhere.
    scheduler.ask("filter", &by_names(&asked, &["gpu-a"]));
    assert_eq!(held().as_deref(), Some("gpu-a"));
    // Offered nowhere, it is held nowhere.
    scheduler.ask("filter", &by_names(&asked, &["unseen"]));
    assert_eq!(held(), None);
    scheduler.ask("filter", &by_names(&asked, &names));
    assert!(held().is_some());
    change(&server, 2, &[bound(&asked, "gpu-b")]);
    assert_eq!(held(), None, "its source shows where it is");
    let placed = server
        .state
        .snapshot()
        .state
        .tasks()
        .get("team/a")
        .unwrap()
        .record
        .node
        .to_string();
    assert_eq!(placed, "gpu-b");
}

#[test]
fn a_pod_with_devices_is_offered_the_node_whose_devices_are_held() {
    let server = EmbeddedServer::start();
    reload(
        &server,
        "default",
        "actions: allocate\ntiers:\n- plugins:\n  - name: gpu-devices\n",
    );
    let shared = |name: &str| {
        let amounts = json!({"cpu": "32", "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"});
        node(name, &amounts)
    };
    let share = |name: &str| {
        let mut pod = pod(name, &json!({"cpu": "1"}), "");
        let amounts = json!({"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory-ratio": "60"});
        pod["spec"]["containers"][0]["resources"]["limits"] = amounts;
        pod
    };
    let pods = [share("a"), share("b"), share("c")];
    let mut objects = vec![shared("n1"), shared("n2")];
    objects.extend_from_slice(&pods);
    load(&server, &objects);
    let mut scheduler = Scheduler::connect(server.http);
    let mut taken = Vec::new();
    for pod in &pods[..2] {
        let response = scheduler.ask("filter", &by_names(pod, &["n1", "n2"]));
        let names = response["NodeNames"].as_array().unwrap().clone();
        assert_eq!(names.len(), 1, "{response}");
        taken.extend(names);
    }
    taken.sort_by_key(ToString::to_string);
    assert_eq!(taken, ["n1", "n2"], "two shares of 600 do not fit on one device");
    let response = scheduler.ask("filter", &by_names(&pods[2], &["n1", "n2"]));
    assert_eq!(response["NodeNames"], json!([]), "{response}");
}
