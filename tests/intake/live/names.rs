//! Resources that pods invent, beside those that nodes have.

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::{Value, json};

use super::api::ClusterApi;
use super::{WatchingServer, fit_count};
use crate::support::records::{delta, full_sync, job, node as node_record, task};
use crate::support::{EmbeddedServer, metric_value, until};

fn node(name: &str, device: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "8", "pods": "110", device: "4"}}})
}

/// Pod that asks for 250 resources which no node has.
fn pod(number: usize) -> Value {
    let invented = (0..250).map(|own| (format!("x.io/p{number}-{own:03}"), json!("1")));
    let requests: Value = invented.collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}"), "namespace": "web", "uid": format!("p{number}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]}, "status": {"phase": "Pending"}})
}

/// Number of nodes that a task fits which asks for this resource.
fn fits(server: &EmbeddedServer, resource: &str) -> u32 {
    fit_count(server, &[("cpu", "1"), (resource, "1")])
}

#[test]
fn resources_that_pods_invent_keep_no_node_out() {
    let api = ClusterApi::start();
    api.put(&node("n1", "x.io/old"));
    for number in 0..8 {
        api.put(&pod(number));
    }
    let watching = WatchingServer::start(&api, &[]);
    assert_eq!(watching.tasks(), 8);
    assert!(
        watching
            .task("web/p7")
            .requests
            .unwrap()
            .items
            .contains_key("pumice/other-resources")
    );
    // One node has what nobody asked for, and one what a pod asks for whose resources had no place.
    api.put(&node("n2", "x.io/new"));
    api.put(&node("n3", "x.io/p7-249"));
    until("the nodes join", || watching.has_node("n2") && watching.has_node("n3"));
    until("the pod asks for its resource by name", || {
        watching
            .task("web/p7")
            .requests
            .unwrap()
            .items
            .contains_key("x.io/p7-249")
    });
    let again = WatchingServer::start(&api, &[]);
    for own in [&watching, &again] {
        let verdicts = ["x.io/old", "x.io/new", "x.io/p7-249", "x.io/p7-001"].map(|name| fits(&own.server, name));
        assert_eq!(verdicts, [1, 1, 1, 0]);
        assert_eq!(
            (
                own.tasks(),
                metric_value(own.server.http, "pumice_cluster_unreadable_objects_total")
            ),
            (8, 0.0)
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one history from its start to its end")]
fn resources_of_tasks_and_jobs_take_no_place_of_those_of_nodes_and_queues() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.resource_names = 6;
    let server = EmbeddedServer::with(config);
    let amounts = |names: std::ops::Range<usize>| -> Vec<String> { names.map(|own| format!("x.io/r{own}")).collect() };
    let list = |names: &[String]| pb::ResourceList {
        items: names.iter().map(|name| (name.clone(), "2".to_owned())).collect(),
    };
    let asking = || pb::Cluster {
        tasks: vec![pb::Task {
            requests: Some(list(&amounts(0..9))),
            ..task("a/t", "", &[])
        }],
        jobs: vec![pb::Job {
            min_resources: Some(list(&amounts(9..20))),
            ..job("a/j", "q")
        }],
        ..pb::Cluster::default()
    };
    let outcome = server.wire.apply_batch(full_sync("one", 1, asking())).unwrap();
    assert_eq!(outcome.refused, [], "nothing is refused");
    assert!(
        outcome.warnings.iter().any(|own| own.reason == "LIMIT_EXCEEDED"),
        "{outcome:?}"
    );
    let stored = || {
        server
            .wire
            .list_tasks(pb::ListTasksRequest::default())
            .unwrap()
            .tasks
            .remove(0)
            .task
            .unwrap()
    };
    let items = stored().requests.unwrap().items;
    // What has no place is one sum.
    let shared: Vec<_> = items
        .iter()
        .filter(|(name, _)| *name == "pumice/other-resources")
        .collect();
    assert_eq!(shared.len(), 1, "{items:?}");
    // Another source has nodes with three more resources, and its place for a fourth is not there.
    let nodes = |names: &[&str]| pb::Cluster {
        nodes: names
            .iter()
            .map(|name| node_record(name, &[("cpu", "8"), (&*format!("x.io/{name}"), "4")]))
            .collect(),
        ..pb::Cluster::default()
    };
    let sent = server
        .wire
        .apply_batch(full_sync("two", 1, nodes(&["n1", "n2", "r8"])))
        .unwrap();
    assert_eq!(sent.refused, []);
    let more = server.wire.apply_batch(delta("two", 2, nodes(&["n4"]))).unwrap();
    assert_eq!(more.refused[0].reason, "LIMIT_EXCEEDED");
    // The first source has to say again which of its tasks ask for what the nodes have.
    let late = server
        .wire
        .apply_batch(delta("one", 2, pb::Cluster::default()))
        .unwrap();
    assert_eq!(late.resync.unwrap().reason, "RESOURCES_NEEDED");
    server.wire.apply_batch(full_sync("one", 3, asking())).unwrap();
    assert!(stored().requests.unwrap().items.contains_key("x.io/r8"));
    let quiet = server
        .wire
        .apply_batch(delta("one", 4, pb::Cluster::default()))
        .unwrap();
    assert_eq!(quiet.resync, None);
}
