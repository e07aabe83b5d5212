//! Quotas and budgets of namespaces, as the watch shows them from the first list on.

use pumice::server::pb;
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::until;

const QUOTAS: &str = "/api/v1/resourcequotas";
const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

fn quota(namespace: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": namespace},
        "spec": {"hard": {"cpu": "99"}}, "status": {"hard": {"cpu": cpu}, "used": {"cpu": "1"}}})
}

fn budget(namespace: &str, allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {"disruptionsAllowed": allowed}})
}

fn cluster() -> ClusterApi {
    let api = ClusterApi::start();
    api.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}}));
    for name in ["a", "b"] {
        api.put(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}}),
        );
        api.put(&quota(name, "4"));
        api.put(&budget(name, 2));
    }
    api
}

/// Cpu of the quotas of a namespace, and evictions that its budgets allow.
fn parts(watching: &WatchingServer, namespace: &str) -> (Vec<String>, Vec<i32>) {
    let request = pb::ListNamespacesRequest::default();
    let namespaces = watching.server.wire.list_namespaces(request).unwrap().namespaces;
    let mut records = namespaces.into_iter().filter_map(|own| own.namespace);
    let record = records.find(|own| own.name == namespace).unwrap();
    assert_eq!(record.labels["team"], namespace);
    let cpu = |quota: pb::ResourceQuota| quota.hard.unwrap().items["cpu"].clone();
    let allowed = record
        .disruption_budgets
        .iter()
        .map(|budget| budget.disruptions_allowed);
    let allowed = allowed.collect();
    (record.resource_quotas.into_iter().map(cpu).collect(), allowed)
}

fn wanted(cpu: &[&str], allowed: &[i32]) -> (Vec<String>, Vec<i32>) {
    (cpu.iter().map(|cpu| (*cpu).to_owned()).collect(), allowed.to_vec())
}

#[test]
fn quotas_and_budgets_follow_their_objects() {
    let api = cluster();
    let watching = WatchingServer::start(&api, &[]);
    for name in ["a", "b"] {
        assert_eq!(parts(&watching, name), wanted(&["4"], &[2]));
    }
    api.put(&quota("a", "6"));
    api.put(&budget("a", 0));
    until("both have changed", || parts(&watching, "a") == wanted(&["6"], &[0]));
    api.forget_versions(QUOTAS);
    api.delete(&quota("a", "6"));
    api.delete(&budget("a", 0));
    until("both are gone", || parts(&watching, "a") == wanted(&[], &[]));
    assert_eq!(parts(&watching, "b"), wanted(&["4"], &[2]));
}

#[test]
fn without_rights_to_them_the_watch_goes_on_and_says_so() {
    let api = cluster();
    api.refuse(QUOTAS, 403);
    api.uninstall(BUDGETS);
    let watching = WatchingServer::start(&api, &[]);
    let reported = watching.condition();
    for wanted in [
        "resourcequotas (forbidden: the test says 403",
        "poddisruptionbudgets.policy (not served by the API server)",
    ] {
        assert!(reported.contains(wanted), "{reported}");
    }
    assert_eq!(parts(&watching, "a"), wanted(&[], &[]));
    api.refuse(QUOTAS, 200);
    api.install(BUDGETS);
    until("both are watched", || parts(&watching, "a") == wanted(&["4"], &[2]));
}

#[test]
fn of_watched_namespaces_only_their_own_are_read() {
    let watching = WatchingServer::start(&cluster(), &["a"]);
    assert_eq!(parts(&watching, "a"), wanted(&["4"], &[2]));
    assert_eq!(parts(&watching, "b"), wanted(&[], &[]));
}
