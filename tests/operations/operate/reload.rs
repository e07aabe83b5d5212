//! Reloads from every origin: one history, and a bad document is never in force.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;

use super::program::LoggedProcess;
use super::{TestDirectory, document, metric_value, until};
use crate::support::EmbeddedServer;
use crate::support::wire::BlockingClients;

fn server_watching_file(file: &Path) -> EmbeddedServer {
    EmbeddedServer::with(ServerConfig {
        policy_file: Some(file.to_owned()),
        policy_poll: Duration::from_millis(5),
        ..ServerConfig::on_free_ports()
    })
}

fn active(wire: &BlockingClients) -> pb::Policy {
    wire.get_policy(pb::GetPolicyRequest::default())
        .unwrap()
        .policy
        .unwrap()
}

fn serves(wire: &BlockingClients, document: &str) {
    until(document, || active(wire).document == document);
}

#[test]
fn a_valid_file_serves_and_an_invalid_one_is_reported() {
    let scratch = TestDirectory::new();
    let file = scratch.file("policy.yaml", &document("one"));
    let server = server_watching_file(&file);
    let wire = &server.wire;
    assert_eq!(active(wire).origin, format!("file:{}", file.display()));

    std::fs::write(&file, document("two")).unwrap();
    serves(wire, &document("two"));
    std::fs::write(&file, "actions: allocate\ntiers: 7\n").unwrap();
    let refused = "pumice_policy_reloads_total{origin=\"file\",outcome=\"rejected\"}";
    until("refused", || metric_value(server.http, refused) == 1.0);
    assert_eq!((active(wire).version, active(wire).document), (2, document("two")));
    let (status, ready) = server.page("/readyz?verbose");
    assert_eq!(status, 200);
    assert!(
        ready.contains("[+] reload/default: the last document, from file:"),
        "{ready}"
    );
    assert_eq!(
        metric_value(server.http, "pumice_policy_rejected{policy=\"default\"}"),
        1.0
    );

    std::fs::remove_file(&file).unwrap();
    until("missing", || {
        server.page("/readyz?verbose").1.contains("cannot be read")
    });
    std::fs::write(&file, document("three")).unwrap();
    serves(wire, &document("three"));
    assert_eq!(active(wire).version, 3);
    assert_eq!(
        metric_value(server.http, "pumice_policy_rejected{policy=\"default\"}"),
        0.0
    );
    assert_eq!(
        metric_value(
            server.http,
            "pumice_policy_reloads_total{origin=\"file\",outcome=\"accepted\"}"
        ),
        3.0
    );
}

/// Checks a change as the kubelet writes a `ConfigMap`: a new directory, then one swapped link.
#[test]
fn a_swapped_link_is_seen() {
    let scratch = TestDirectory::new();
    let version = |name: &str, comment: &str| {
        std::fs::create_dir(scratch.0.join(name)).unwrap();
        scratch.file(&format!("{name}/policy.yaml"), &document(comment));
    };
    version("..one", "first");
    symlink("..one", scratch.0.join("..data")).unwrap();
    symlink("..data/policy.yaml", scratch.0.join("policy.yaml")).unwrap();
    let server = server_watching_file(&scratch.0.join("policy.yaml"));
    // The length is the same, so only the content differs.
    version("..two", "other");
    symlink("..two", scratch.0.join("..data_tmp")).unwrap();
    std::fs::rename(scratch.0.join("..data_tmp"), scratch.0.join("..data")).unwrap();
    std::fs::remove_dir_all(scratch.0.join("..one")).unwrap();
    serves(&server.wire, &document("other"));
}

#[test]
fn a_hangup_reads_the_file_and_all_ways_share_one_history() {
    let scratch = TestDirectory::new();
    let file = scratch.file("policy.yaml", &document("one"));
    let path = file.display().to_string();
    let program = LoggedProcess::serve(&["--policy-file", &path, "--policy-poll-ms", "0"]);
    let wire = program.connect();
    std::fs::write(&file, document("two")).unwrap();
    program.signal("HUP");
    serves(&wire, &document("two"));

    let sent = pb::ReloadPolicyRequest {
        document: document("three"),
        expected_version: Some(2),
        ..pb::ReloadPolicyRequest::default()
    };
    wire.reload_policy(sent.clone()).unwrap();
    assert_eq!(wire.reload_policy(sent).unwrap_err().code(), tonic::Code::Aborted);
    wire.rollback_policy(pb::RollbackPolicyRequest {
        version: 1,
        ..pb::RollbackPolicyRequest::default()
    })
    .unwrap();
    program.signal("HUP");
    serves(&wire, &document("two"));

    std::fs::write(&file, "nothing").unwrap();
    program.signal("HUP");
    let refused = "pumice_policy_reloads_total{origin=\"sighup\",outcome=\"rejected\"}";
    until("refused", || metric_value(program.http, refused) == 1.0);
    let named = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        ..pb::ListPoliciesRequest::default()
    };
    let history = wire.list_policies(named).unwrap().policies;
    let origins: Vec<&str> = history.iter().map(|version| version.origin.as_str()).collect();
    let (by_file, by_hangup) = (format!("file:{path}"), format!("sighup:{path}"));
    assert_eq!(
        origins,
        [&by_hangup, "rollback:1", "rpc:127.0.0.1", &by_hangup, &by_file]
    );
    let rejection = program.logged("the rejection has a line", |line| line["message"] == "policy rejected");
    assert_eq!(
        (&rejection["level"], &rejection["origin"]),
        (&"ERROR".into(), &by_hangup.into())
    );
    let named = rejection["error"].as_str().unwrap();
    assert!(named.contains(" rejected: 1 error (1:1: TYPE_INVALID: "), "{named}");
}
