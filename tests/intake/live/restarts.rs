//! Servers with durable promises that start again while their cluster does not tell all.

use pumice::config::ServerConfig;
use pumice::server::pb;
use serde_json::{Value, json};

use super::WatchingServer;
use super::api::ClusterApi;
use crate::support::ledger::{ask, confirm, put_policy, wants};
use crate::support::records::session_ref;
use crate::support::{TestDirectory, until};

const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/podgroups";

fn objects() -> [Value; 4] {
    let volcano = "scheduling.volcano.sh/v1beta1";
    [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}),
        json!({"apiVersion": volcano, "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1, "capability": {"cpu": "8"}}}),
        json!({"apiVersion": volcano, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "web", "uid": "web/g-uid"},
            "spec": {"minMember": 1, "queue": "q", "minResources": {"cpu": "2"}}, "status": {"phase": "Pending"}}),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "web", "uid": "p", "annotations": {"scheduling.k8s.io/group-name": "g"}},
            "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"}}),
    ]
}

/// Commits the pod to its node.
fn commit(watching: &WatchingServer) {
    let wire = &watching.server.wire;
    let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
    let placement = pb::TaskPlacement {
        task: "web/p".to_owned(),
        node: "n1".to_owned(),
        ..Default::default()
    };
    let allocate = pb::session_change::Change::Allocate(placement);
    let Some(pb::evaluation_ref::Target::Session(session)) = session_ref(&session, 0, vec![allocate]).target else {
        panic!("a step of a session")
    };
    let request = pb::CommitSessionRequest {
        session: Some(session),
        jobs: Vec::new(),
    };
    let committed = wire.commit_session(request).unwrap();
    assert!(
        committed.jobs.iter().all(|job| job.rejections.is_empty()),
        "{committed:?}"
    );
}

/// Numbers of reservations and of committed placements.
fn promises(watching: &WatchingServer) -> (usize, usize) {
    let wire = &watching.server.wire;
    let reservations = wire.list_reservations(pb::ListReservationsRequest::default()).unwrap();
    let tasks = wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    (
        reservations.reservations.len(),
        tasks.iter().filter(|task| task.assumed).count(),
    )
}

#[test]
fn a_restart_without_lists_of_groups_ends_no_promise() {
    for status in [404, 403, 503, 0] {
        let api = ClusterApi::start();
        for object in objects() {
            api.put(&object);
        }
        let directory = TestDirectory::new();
        let config = ServerConfig {
            data_dir: Some(directory.0.join("data")),
            ..ServerConfig::on_free_ports()
        };
        let watching = WatchingServer::start_with(config.clone(), &api.kubeconfig());
        put_policy(&watching.server.wire);
        let admitted = watching
            .server
            .wire
            .admit(confirm(vec![ask(wants("web/g", "q", 2), 1)]));
        let admitted = admitted.unwrap().result.unwrap();
        assert!(admitted.items[0].permitted, "{admitted:?}");
        commit(&watching);
        assert_eq!(promises(&watching), (1, 1));
        drop(watching);
        if status == 0 {
            api.uninstall(GROUPS);
        } else {
            api.refuse(GROUPS, status);
        }
        let watching = WatchingServer::start_with(config, &api.kubeconfig());
        assert_eq!((watching.jobs().len(), promises(&watching)), (0, (1, 1)), "{status}");
        api.refuse(GROUPS, 200);
        api.install(GROUPS);
        until("the group is there", || watching.jobs() == ["web/g"]);
        assert_eq!(promises(&watching), (1, 1), "{status}");
    }
}
