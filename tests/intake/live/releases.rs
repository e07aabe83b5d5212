//! Releases of a policy that derive the amounts of pods otherwise than those that the source had derived them by.

use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::records::{delta, full_sync};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, until};

/// Pod whose containers ask for one CPU, and which asks for three as a whole.
fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"schedulerName": "volcano", "resources": {"requests": {"cpu": "3"}},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"}})
}

/// Cluster of such a pod, as its object.
fn cluster() -> pb::Cluster {
    pb::Cluster {
        objects: vec![pod("a").to_string().into_bytes()],
        ..pb::Cluster::default()
    }
}

/// Puts a policy of this release in force. Returns the sources that it waits for.
fn follow(wire: &BlockingClients, release: &str) -> Vec<String> {
    let request = pb::ReloadPolicyRequest {
        document: format!(
            "actions: allocate\ntiers: [{{plugins: [{{name: gang}}]}}]\npumice: {{compatibility: {release}}}\n"
        ),
        ..pb::ReloadPolicyRequest::default()
    };
    wire.reload_policy(request).unwrap().awaited_sources
}

fn cpu(wire: &BlockingClients) -> String {
    let tasks = wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let task = tasks.into_iter().find_map(|stored| stored.task).unwrap();
    task.requests.unwrap().items.remove("cpu").unwrap()
}

#[test]
fn a_watch_derives_pods_again_when_a_policy_follows_a_release_that_derives_them_otherwise() {
    let api = ClusterApi::start();
    api.put(&pod("a"));
    let mut config = ServerConfig::on_free_ports();
    // The watch hears of it by its next heartbeat.
    config.limits.state.source_stale = Duration::from_secs(3);
    let watching = WatchingServer::start_with(config, &api.kubeconfig());
    let wire = &watching.server.wire;
    assert_eq!(cpu(wire), "3");
    assert_eq!(follow(wire, "volcano-1.14.4"), ["kubernetes"]);
    until("the watch derives the pod by 1.14.4", || cpu(wire) == "1");
    // Changes come by the same rules.
    let mut changed = pod("a");
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    api.put(&changed);
    until("the pod changes", || cpu(wire) == "2");
    assert_eq!(follow(wire, "volcano-ed72c7c81"), ["kubernetes"]);
    until("the watch derives the pod by ed72c7c81", || cpu(wire) == "3");
    assert!(follow(wire, "corrected").is_empty());
}

#[test]
fn objects_are_sent_again_when_a_policy_follows_a_release_that_derives_pods_otherwise() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let nothing = || pb::Cluster::default();
    wire.apply_batch(full_sync("s", 1, cluster())).unwrap();
    // A source without pods stays as it is under every release.
    wire.apply_batch(full_sync("empty", 1, nothing())).unwrap();
    assert_eq!(cpu(wire), "3");
    assert_eq!(follow(wire, "volcano-1.14.4"), ["s"]);
    let (_, page) = server.page("/readyz?verbose");
    assert!(
        page.contains("derived by `upstream`, and policies follow `volcano-1.14.4`"),
        "{page}"
    );
    let awaited = |source: &str| {
        let (_, page) = server.page("/metrics");
        page.contains(&format!("pumice_source_awaited{{source=\"{source}\"}} 1"))
    };
    assert_eq!((awaited("s"), awaited("empty")), (true, false));
    assert_eq!(wire.apply_batch(delta("empty", 2, nothing())).unwrap().resync, None);
    let resync = wire.apply_batch(delta("s", 2, nothing())).unwrap().resync.unwrap();
    assert_eq!(
        (resync.reason.as_str(), resync.pod_release.as_str()),
        ("RELEASE_CHANGED", "volcano-1.14.4")
    );
    assert!(
        resync.message.contains("`upstream`") && resync.message.contains("`volcano-1.14.4`"),
        "{}",
        resync.message
    );
    assert_eq!(wire.apply_batch(full_sync("s", 3, cluster())).unwrap().resync, None);
    assert_eq!((cpu(wire).as_str(), awaited("s")), ("1", false));
    assert_eq!(wire.apply_batch(delta("s", 4, nothing())).unwrap().resync, None);
    // Where all policies follow no release, the newest one counts.
    assert_eq!(follow(wire, "corrected"), ["s"]);
    let resync = wire.apply_batch(delta("s", 5, cluster())).unwrap().resync.unwrap();
    assert_eq!(
        (resync.reason.as_str(), resync.pod_release.as_str()),
        ("RELEASE_CHANGED", "upstream")
    );
    assert_eq!(cpu(wire), "1");
}

#[test]
fn a_source_of_another_release_than_policies_follow_learns_which_one() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let by = |release: &str, mut batch: pb::Batch| {
        release.clone_into(&mut batch.pod_release);
        batch
    };
    follow(wire, "volcano-1.14.4");
    // The first part of a full sync is told at once, also of a source that nobody knows yet.
    for (sequence, kind) in [(1, pb::BatchKind::FullSyncPart), (2, pb::BatchKind::FullSyncLast)] {
        let batch = pb::Batch {
            kind: kind.into(),
            part: 1,
            ..full_sync("s", sequence, pb::Cluster::default())
        };
        let resync = wire.apply_batch(by("upstream", batch)).unwrap().resync.unwrap();
        assert_eq!(
            (resync.reason.as_str(), resync.pod_release.as_str()),
            ("RELEASE_CHANGED", "volcano-1.14.4")
        );
    }
    let mut part = by("volcano-1.14.4", full_sync("s", 3, pb::Cluster::default()));
    part.set_kind(pb::BatchKind::FullSyncPart);
    part.part = 1;
    assert_eq!(wire.apply_batch(part).unwrap().resync, None);
    // The release changes between two parts, of which the second one is right.
    follow(wire, "corrected");
    let mut last = by("upstream", full_sync("s", 4, pb::Cluster::default()));
    last.part = 2;
    let resync = wire.apply_batch(last).unwrap().resync.unwrap();
    assert_eq!(
        (resync.reason.as_str(), resync.pod_release.as_str()),
        ("RELEASE_CHANGED", "upstream")
    );
    let mut other = full_sync("s", 5, pb::Cluster::default());
    "volcano-9".clone_into(&mut other.pod_release);
    let error = wire.apply_batch(other).unwrap_err();
    assert!(
        error.message().contains("batch.pod_release: `volcano-9`"),
        "{}",
        error.message()
    );
}
