//! Profiles, and stored names that a terminal would obey.

use super::{err, lab, out};
use crate::support::EmbeddedServer;
use crate::support::authority::TestAuthority;
use crate::support::records::{full_sync, queue};

use pumice::server::pb;

#[test]
fn the_live_view_takes_files_of_tls_from_a_profile() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let profile = format!(
        "default: lab\nprofiles:\n  lab: {{server: 'https://{}', metrics: 'https://{}', ca: ca.crt, certificate: admin.crt, key: admin.key, server_name: localhost}}\n",
        program.grpc, program.http
    );
    std::fs::write(authority.path("config.yaml"), profile).unwrap();
    let mut command = lab(&["top", "--once"]);
    let top = command
        .env("PUMICE_CLIENT_CONFIG", authority.path("config.yaml"))
        .output()
        .unwrap();
    assert!(
        top.status.success() && !err(&top).contains("no metrics"),
        "{}",
        err(&top)
    );
}

#[test]
fn no_stored_name_reaches_a_terminal_of_the_lab_as_it_is() {
    let server = EmbeddedServer::start();
    let cluster = pb::Cluster {
        queues: vec![queue("red\u{1b}[2J\u{7}\r\u{202e}x")],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("kube", 1, cluster)).unwrap();
    // Its queues have shares, so the view lists them.
    let policy = pb::ReloadPolicyRequest {
        document: include_str!("../../../../examples/hdrf.yaml").to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(policy).unwrap();
    let (address, metrics) = (server.grpc.to_string(), format!("http://{}", server.http));
    let shown = lab(&["top", "--once", "--server", &address, "--metrics", &metrics])
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", err(&shown));
    for text in [out(&shown), err(&shown)] {
        let bad = text
            .chars()
            .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{text:?}");
    }
    assert!(out(&shown).contains("red"), "the queue is listed: {}", out(&shown));
}
