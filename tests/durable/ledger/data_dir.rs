//! State in `data_dir` that survives the process: reservations, releases, versions of policies.

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_state::store::FailingStore;

use super::{TestDirectory, ask, confirm, limited, put_policy, wants};
use crate::support::EmbeddedServer;
use crate::support::process::serve;
use crate::support::records::full_sync;

fn config(directory: &TestDirectory) -> ServerConfig {
    ServerConfig {
        data_dir: Some(directory.0.join("data")),
        ..ServerConfig::on_free_ports()
    }
}

fn cluster() -> pb::Cluster {
    pb::Cluster {
        queues: vec![limited("q", 10)],
        ..Default::default()
    }
}

fn jobs(server: &EmbeddedServer) -> Vec<String> {
    let all = pb::ListReservationsRequest::default();
    let rows = server.wire.list_reservations(all).unwrap().reservations;
    rows.into_iter().map(|row| row.job).collect()
}

fn active(server: &EmbeddedServer) -> pb::Policy {
    let policy = server.wire.get_policy(pb::GetPolicyRequest::default()).unwrap();
    policy.policy.unwrap()
}

#[test]
fn reservations_outlive_the_process() {
    let directory = TestDirectory::named("promises");
    let server = EmbeddedServer::with(config(&directory));
    put_policy(&server.wire);
    server.wire.apply_batch(full_sync("kube", 1, cluster())).unwrap();
    let items = ["ns/a", "ns/b"].map(|name| ask(wants(name, "q", 5), 1)).to_vec();
    let reply = server.wire.admit(confirm(items)).unwrap();
    assert_eq!(reply.durability(), pb::Durability::Disk);
    let release = pb::ReleaseReservationRequest {
        job: "ns/a".to_owned(),
        attempt: 1,
        ..Default::default()
    };
    server.wire.release_reservation(release).unwrap();
    drop(server);

    let server = EmbeddedServer::with(config(&directory));
    assert_eq!(jobs(&server), ["ns/b"]);
    assert_eq!(active(&server).origin, "rpc:127.0.0.1", "the policy serves again");
    server.wire.apply_batch(full_sync("kube", 1, cluster())).unwrap();
    let items = vec![
        ask(wants("ns/a", "q", 5), 1),
        ask(wants("ns/b", "q", 5), 1),
        ask(wants("ns/c", "q", 6), 1),
        ask(wants("ns/d", "q", 5), 1),
    ];
    let items = server.wire.admit(confirm(items)).unwrap().result.unwrap().items;
    let said: Vec<bool> = items.iter().map(|item| item.permitted).collect();
    assert_eq!(said, [false, true, false, true]);
    assert_eq!(items[0].reasons[0].code, "ReservationReleased");
}

#[test]
fn versions_of_policies_outlive_the_process() {
    let directory = TestDirectory::named("policies");
    let server = EmbeddedServer::with(config(&directory));
    put_policy(&server.wire);
    let other = pb::ReloadPolicyRequest {
        document: "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n".to_owned(),
        ..Default::default()
    };
    server.wire.reload_policy(other).unwrap();
    server
        .wire
        .rollback_policy(pb::RollbackPolicyRequest {
            version: 2,
            ..Default::default()
        })
        .unwrap();
    let versions = |server: &EmbeddedServer| -> Vec<(u64, String)> {
        let list = pb::ListPoliciesRequest {
            name: "default".to_owned(),
            ..Default::default()
        };
        let policies = server.wire.list_policies(list).unwrap().policies;
        policies
            .into_iter()
            .map(|policy| (policy.version, policy.origin))
            .collect()
    };
    let before = versions(&server);
    assert_eq!(before.len(), 4);
    drop(server);
    let server = EmbeddedServer::with(config(&directory));
    assert_eq!(versions(&server), before);
    let active = active(&server);
    assert_eq!((active.version, active.origin.as_str()), (4, "rollback:2"));
    // Version numbers continue.
    put_policy(&server.wire);
    let again = server.wire.rollback_policy(pb::RollbackPolicyRequest {
        version: 3,
        ..Default::default()
    });
    assert_eq!(again.unwrap().policy.unwrap().version, 5);
}

#[test]
fn a_policy_file_wins_only_if_it_changed() {
    let directory = TestDirectory::named("file");
    let file = directory.0.join("policy.yaml");
    let write = |plugin: &str| {
        let document = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n");
        std::fs::write(&file, document).unwrap();
    };
    let start = || {
        EmbeddedServer::with(ServerConfig {
            policy_file: Some(file.clone()),
            policy_poll: std::time::Duration::ZERO,
            ..config(&directory)
        })
    };
    write("binpack");
    let server = start();
    assert!(active(&server).origin.starts_with("file:"));
    put_policy(&server.wire);
    drop(server);
    // The file has not changed since it was accepted: the later version stays in force.
    let server = start();
    assert_eq!(
        (active(&server).version, active(&server).origin.as_str()),
        (2, "rpc:127.0.0.1")
    );
    drop(server);
    write("resource-strategy-fit");
    let server = start();
    assert_eq!(active(&server).version, 3);
    assert!(active(&server).origin.starts_with("file:"));
    drop(server);
    assert_eq!(active(&start()).version, 3);
}

#[test]
fn a_directory_belongs_to_one_server() {
    let directory = TestDirectory::named("lock");
    let _first = EmbeddedServer::with(config(&directory));
    let mut command = serve();
    let output = command
        .arg("--data-dir")
        .arg(directory.0.join("data"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is in use by another server"), "{said}");
}

#[test]
fn queries_do_not_wait_for_a_flush() {
    let store = FailingStore::default();
    let server = EmbeddedServer::on_store(ServerConfig::on_free_ports(), Box::new(store.clone()));
    put_policy(&server.wire);
    server.wire.apply_batch(full_sync("kube", 1, cluster())).unwrap();
    let blocked = store.block_flush();
    let wire = server.connect();
    let confirmation = std::thread::spawn(move || wire.admit(confirm(vec![ask(wants("ns/a", "q", 5), 1)])));
    blocked.wait_for_write();
    assert_eq!(jobs(&server), [""; 0]);
    assert_eq!(server.page("/livez").0, 200);
    drop(blocked);
    let reply = confirmation.join().unwrap().unwrap();
    assert_eq!(reply.durability(), pb::Durability::Disk);
    assert_eq!(jobs(&server), ["ns/a"]);
}
