//! Policies and sources that are no longer wanted.

use pumice::config::ServerConfig;
use pumice::server::pb;
use tonic::Code;

use super::{TestDirectory, cluster, document};
use crate::support::ledger::{ask, confirm, limited, put_policy, wants};
use crate::support::process::{err, out, pumice};
use crate::support::records::{delta, full_sync, node, nodes};
use crate::support::{EmbeddedServer, reason};

fn push(server: &EmbeddedServer, name: &str, text: &str) -> u64 {
    let request = pb::ReloadPolicyRequest {
        name: name.to_owned(),
        document: document(text),
        ..pb::ReloadPolicyRequest::default()
    };
    let pushed = server.wire.reload_policy(request).unwrap();
    pushed.policy.unwrap().version
}

fn delete(name: &str, expected_version: Option<u64>) -> pb::DeletePolicyRequest {
    pb::DeletePolicyRequest {
        name: name.to_owned(),
        expected_version,
    }
}

fn policies(server: &EmbeddedServer) -> Vec<String> {
    let info = server.wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    info.policies
}

#[test]
fn a_deleted_policy_is_gone_also_after_a_restart() {
    let directory = TestDirectory::new();
    let config = ServerConfig {
        data_dir: Some(directory.0.join("data")),
        ..ServerConfig::on_free_ports()
    };
    let server = EmbeddedServer::with(config.clone());
    for text in ["one", "two"] {
        push(&server, "gpu", text);
    }
    let wire = &server.wire;
    let other = wire.delete_policy(delete("gpu", Some(1))).unwrap_err();
    assert_eq!(
        (other.code(), reason(&other).as_str()),
        (Code::Aborted, "VERSION_MISMATCH")
    );
    assert_eq!(policies(&server), ["default", "gpu"]);
    let deleted = wire.delete_policy(delete("gpu", Some(2))).unwrap();
    assert_eq!(deleted.durability(), pb::Durability::Disk);
    assert_eq!((deleted.deleted.unwrap().version, deleted.replacement), (2, None));
    assert_eq!(policies(&server), ["default"]);
    assert!(!server.page("/metrics").1.contains("policy=\"gpu\""));
    for request in [delete("gpu", None), delete("never", None)] {
        let unknown = wire.delete_policy(request).unwrap_err();
        assert_eq!(
            (unknown.code(), reason(&unknown).as_str()),
            (Code::NotFound, "POLICY_UNKNOWN")
        );
    }
    let nameless = wire.delete_policy(delete("", None)).unwrap_err();
    assert_eq!(
        (nameless.code(), reason(&nameless).as_str()),
        (Code::InvalidArgument, "NAME_MISSING")
    );
    drop(server);
    let server = EmbeddedServer::with(config);
    assert_eq!(policies(&server), ["default"]);
    assert_eq!(
        push(&server, "gpu", "three"),
        1,
        "a new policy of that name begins with version 1"
    );
}

#[test]
fn deleting_default_returns_to_the_built_in_policy() {
    let directory = TestDirectory::new();
    let config = ServerConfig {
        data_dir: Some(directory.0.join("data")),
        ..ServerConfig::on_free_ports()
    };
    let server = EmbeddedServer::with(config.clone());
    let active = |server: &EmbeddedServer| {
        let policy = server
            .wire
            .get_policy(pb::GetPolicyRequest::default())
            .unwrap()
            .policy
            .unwrap();
        (policy.version, policy.hash, policy.origin)
    };
    let (_, built_in, _) = active(&server);
    assert_eq!(push(&server, "", "own"), 2);
    let output = pumice(Some(&server), &["policy", "delete", "default"]);
    assert!(output.status.success(), "{}", err(&output));
    let line = "policy default: deleted with all versions up to 2; the built-in policy is active as version 3\n";
    assert_eq!(out(&output), format!("durability: DISK\n{line}"));
    assert_eq!(active(&server), (3, built_in.clone(), "built-in".to_owned()));
    let history = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        ..pb::ListPoliciesRequest::default()
    };
    assert_eq!(server.wire.list_policies(history).unwrap().policies.len(), 1);
    drop(server);
    let server = EmbeddedServer::with(config);
    let (_, hash, origin) = active(&server);
    assert_eq!((hash, origin.as_str()), (built_in, "built-in"), "also after a restart");
}

#[test]
fn deleted_policies_make_room_for_others() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.policy_names = 2;
    let server = EmbeddedServer::with(config);
    push(&server, "a", "x");
    let full = server.wire.reload_policy(pb::ReloadPolicyRequest {
        name: "b".to_owned(),
        document: document("x"),
        ..pb::ReloadPolicyRequest::default()
    });
    assert_eq!(full.unwrap_err().code(), Code::ResourceExhausted);
    server.wire.delete_policy(delete("a", None)).unwrap();
    push(&server, "b", "x");
}

fn forget(source: &str, force: bool) -> pb::ForgetSourceRequest {
    pb::ForgetSourceRequest {
        source: source.to_owned(),
        force,
    }
}

fn records(server: &EmbeddedServer) -> (usize, usize) {
    let nodes = server.wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    let jobs = server.wire.list_jobs(pb::ListJobsRequest::default()).unwrap().jobs;
    (nodes.len(), jobs.len())
}

#[test]
fn a_forgotten_source_takes_its_records_and_its_slot_with_it() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.sources = 1;
    let server = EmbeddedServer::with(config);
    let wire = &server.wire;
    wire.apply_batch(full_sync("old", 1, cluster(3))).unwrap();
    let full = wire.apply_batch(full_sync("new", 1, cluster(1))).unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    let active = wire.forget_source(forget("old", false)).unwrap_err();
    assert_eq!(
        (active.code(), reason(&active).as_str()),
        (Code::FailedPrecondition, "SOURCE_ACTIVE")
    );
    assert_eq!(records(&server), (3, 0));
    let output = pumice(Some(&server), &["state", "forget", "old", "--force"]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output).starts_with("source old: forgotten with 3 records and 0 reservations"),
        "{}",
        out(&output)
    );
    assert_eq!(records(&server), (0, 0));
    let info = wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    assert!(info.sources.is_empty(), "{info:?}");
    assert!(!server.page("/metrics").1.contains("source=\"old\""));
    let late = wire.apply_batch(delta("old", 2, cluster(1))).unwrap();
    assert_eq!(late.resync.unwrap().reason, "SOURCE_UNKNOWN");
    wire.apply_batch(full_sync("new", 1, cluster(1))).unwrap();
    assert_eq!(records(&server), (1, 0));
    for source in ["old", "never"] {
        let unknown = wire.forget_source(forget(source, true)).unwrap_err();
        assert_eq!(
            (unknown.code(), reason(&unknown).as_str()),
            (Code::NotFound, "SOURCE_UNKNOWN")
        );
    }
}

#[test]
fn a_forgotten_resource_name_leaves_its_place_to_another() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.state.resource_names = 4;
    let server = EmbeddedServer::with(config);
    let wire = &server.wire;
    let one = |device: &str| nodes(vec![node("n1", &[("cpu", "8"), (device, "2")])]);
    let sent = |sequence, device| wire.apply_batch(full_sync("a", sequence, one(device))).unwrap();
    assert!(sent(1, "x.io/old").refused.is_empty());
    assert_eq!(sent(2, "x.io/new").refused.len(), 1, "its place is taken");
    let forget = |resource: &str| {
        let resource = resource.to_owned();
        wire.forget_resource(pb::ForgetResourceRequest { resource })
    };
    let refused = [
        ("", Code::InvalidArgument, "NAME_MISSING"),
        ("x.io/never", Code::NotFound, "RESOURCE_UNKNOWN"),
        ("x.io/old", Code::FailedPrecondition, "RESOURCE_IN_USE"),
        ("cpu", Code::FailedPrecondition, "RESOURCE_IN_USE"),
    ];
    for (name, code, expected) in refused {
        let error = forget(name).unwrap_err();
        assert_eq!((error.code(), reason(&error).as_str()), (code, expected), "{name}");
    }
    let output = pumice(Some(&server), &["state", "forget", "--resource", "x.io/old"]);
    assert!(err(&output).contains("is used by node n1"), "{}", err(&output));
    assert!(sent(3, "cpu").refused.is_empty());
    let output = pumice(Some(&server), &["state", "forget", "--resource", "x.io/old"]);
    assert!(
        out(&output).starts_with("resource x.io/old: forgotten"),
        "{}",
        err(&output)
    );
    assert!(server.page("/metrics").1.contains("pumice_resources 3"));
    assert!(sent(4, "x.io/new").refused.is_empty());
    let listed = wire.list_nodes(pb::ListNodesRequest::default()).unwrap().nodes;
    let allocatable = listed[0].node.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!(allocatable.items["x.io/new"], "2");
}

#[test]
fn a_source_that_never_came_back_is_forgotten_by_its_reservations() {
    let directory = TestDirectory::new();
    let config = ServerConfig {
        data_dir: Some(directory.0.join("data")),
        ..ServerConfig::on_free_ports()
    };
    let server = EmbeddedServer::with(config.clone());
    put_policy(&server.wire);
    let put = pb::Cluster {
        queues: vec![limited("q", 10)],
        jobs: vec![wants("a/job", "q", 4)],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("gone", 1, put)).unwrap();
    let job = wants("a/job", "q", 4);
    let admitted = server.wire.admit(confirm(vec![ask(job, 1)])).unwrap().result.unwrap();
    assert!(admitted.items[0].permitted, "{admitted:?}");
    drop(server);
    let server = EmbeddedServer::with(config);
    let unknown = server.wire.forget_source(forget("nobody", true)).unwrap_err();
    assert!(unknown.message().contains("nobody"), "{unknown}");
    let forgotten = server.wire.forget_source(forget("gone", false)).unwrap();
    assert_eq!((forgotten.records, forgotten.reservations), (0, 1));
    assert_eq!(forgotten.durability(), pb::Durability::Disk);
    let rows = server
        .wire
        .list_reservations(pb::ListReservationsRequest::default())
        .unwrap();
    assert_eq!(rows.reservations.len(), 0);
    server.wire.forget_source(forget("gone", false)).unwrap_err();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one history from its start to its end")]
fn reservations_go_with_their_source_also_when_it_never_came_back() {
    let directory = TestDirectory::new();
    let config = ServerConfig {
        data_dir: Some(directory.0.join("data")),
        ..ServerConfig::on_free_ports()
    };
    let put = pb::Cluster {
        queues: vec![limited("q", 10)],
        jobs: vec![wants("a/job", "q", 4)],
        ..pb::Cluster::default()
    };
    let reserved = |server: &EmbeddedServer| {
        let request = pb::ListReservationsRequest::default();
        server.wire.list_reservations(request).unwrap().reservations.len()
    };
    let mut restarted = [false, true].into_iter();
    for came_back in [true, false] {
        let server = EmbeddedServer::with(config.clone());
        put_policy(&server.wire);
        server.wire.apply_batch(full_sync("kube", 1, put.clone())).unwrap();
        // Another incarnation, or a grave of the first one would refuse it.
        let uid = if restarted.next() == Some(true) {
            "second"
        } else {
            "first"
        };
        let mut job = wants("a/job", "q", 4);
        uid.clone_into(&mut job.uid);
        let own = pb::Cluster {
            jobs: vec![job.clone()],
            ..pb::Cluster::default()
        };
        server.wire.apply_batch(delta("kube", 2, own)).unwrap();
        let admitted = server.wire.admit(confirm(vec![ask(job, 1)])).unwrap().result.unwrap();
        assert!(admitted.items[0].permitted, "{admitted:?}");
        assert_eq!(reserved(&server), 1);
        let server = if came_back {
            server
        } else {
            drop(server);
            let server = EmbeddedServer::with(config.clone());
            server
                .wire
                .apply_batch(full_sync(
                    "kube",
                    1,
                    pb::Cluster {
                        jobs: vec![],
                        ..put.clone()
                    },
                ))
                .unwrap();
            server
        };
        assert_eq!(reserved(&server), 1, "came back: {came_back}");
        let forgotten = server.wire.forget_source(forget("kube", true)).unwrap();
        assert_eq!(
            (forgotten.reservations, reserved(&server)),
            (1, 0),
            "came back: {came_back}"
        );
        drop(server);
        let server = EmbeddedServer::with(config.clone());
        assert_eq!(reserved(&server), 0, "gone from the disk: came back {came_back}");
    }
}
