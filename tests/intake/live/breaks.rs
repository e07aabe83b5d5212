//! Watches that break, and clusters that are larger than expected.

use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::until;

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/services";

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "web", "uid": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Pending"}})
}

fn service(selector: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "web"}, "spec": {"selector": selector}})
}

fn cluster() -> ClusterApi {
    let api = ClusterApi::start();
    api.put(&node("n1"));
    api.put(&pod("p"));
    api
}

/// Status of the source that the watch feeds.
fn source(watching: &WatchingServer) -> pb::SourceStatus {
    let info = watching.server.wire.get_server_info(pb::GetServerInfoRequest {});
    info.unwrap().sources.remove(0)
}

#[test]
fn while_changes_are_missing_the_source_is_silent_though_others_arrive() {
    let api = cluster();
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.source_stale = Duration::from_secs(2);
    let watching = WatchingServer::start_with(config, &api.kubeconfig());
    api.refuse(PODS, 500);
    let mut round = 0;
    until("the source becomes stale", || {
        let name = format!("new-{round}");
        api.put(&node(&name));
        until("the change is applied", || watching.has_node(&name));
        round += 1;
        source(&watching).stale
    });
    api.refuse(PODS, 200);
    until("the source is heard again", || !source(&watching).stale);
}

#[test]
fn the_probe_of_the_api_server_asks_for_one_node() {
    let api = cluster();
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.source_stale = Duration::from_secs(3);
    let _watching = WatchingServer::start_with(config, &api.kubeconfig());
    api.take_lists();
    let mut lists = Vec::new();
    until("two probes", || {
        lists.append(&mut api.take_lists());
        lists.len() >= 2
    });
    // With `resourceVersion=0` an API server shows all nodes, whatever the limit.
    assert!(lists.iter().all(|list| list == "/api/v1/nodes?limit=1"), "{lists:?}");
}

#[test]
fn objects_with_much_text_are_sent_in_bounded_batches() {
    let api = cluster();
    let mut large = pod("large");
    large["metadata"]["annotations"] = json!({"a": "x".repeat(150 << 10)});
    for number in 0..20 {
        large["metadata"]["name"] = json!(format!("large-{number}"));
        api.put(&large);
    }
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.request_bytes = 1 << 20;
    let watching = WatchingServer::start_with(config, &api.kubeconfig());
    assert_eq!(watching.tasks(), 21);
    // Many changes come at once, too.
    api.refuse(PODS, 500);
    until("the watch is interrupted", || {
        watching.condition().contains("interrupted")
    });
    for number in 20..40 {
        large["metadata"]["name"] = json!(format!("large-{number}"));
        api.put(&large);
    }
    api.refuse(PODS, 200);
    until("the changes are applied", || watching.tasks() == 41);
    assert!(!watching.condition().contains("listed"), "{}", watching.condition());
}

#[test]
fn rights_that_are_missing_leave_out_what_the_account_may_not_see() {
    let api = cluster();
    api.refuse(SERVICES, 403);
    let watching = WatchingServer::start(&api, &[]);
    until("services are forbidden", || {
        watching.condition().contains("services (forbidden")
    });
    until("the server is ready without them", || {
        watching.server.page("/readyz").0 == 200
    });
    api.refuse(SERVICES, 200);
    until("services are watched again", || {
        let condition = watching.condition();
        !condition.contains("forbidden") && !condition.contains("may be missing")
    });
}

#[test]
fn a_watch_that_ends_with_an_error_is_listed_again() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    api.take_lists();
    api.end_watches(NODES, 500);
    let mut lists = Vec::new();
    until("the nodes are listed again", || {
        lists.append(&mut api.take_lists());
        lists.iter().any(|list| list.starts_with("/api/v1/nodes?limit=500"))
    });
    assert!(!lists.iter().any(|list| list.starts_with("/api/v1/pods?")), "{lists:?}");
    api.put(&node("n2"));
    until("changes arrive", || watching.has_node("n2"));
}

#[test]
fn a_look_at_waiting_pods_that_fails_is_made_again() {
    let api = cluster();
    api.put(&service(&json!({"app": "x"})));
    let watching = WatchingServer::start(&api, &[]);
    let selector = || {
        let constraints = watching.task("web/p").constraints.unwrap_or_default();
        constraints.owner_selector.is_some()
    };
    assert!(selector());
    api.refuse_lists(PODS, 1);
    api.put(&service(&json!({"app": "other"})));
    until("the pod has no selector any more", || !selector());
    let rejections = api.take_rejections();
    assert!(
        rejections.iter().any(|refused| refused.contains("namespaces/web/pods")),
        "{rejections:?}"
    );
}
