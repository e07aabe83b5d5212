//! `pumice reservations`, as people use it.

use std::process::{Command, Output};

use super::{ask, confirm, limited, put_policy, wants};
use crate::support::EmbeddedServer;
use crate::support::records::full_sync;
use pumice::server::pb;

fn pumice(server: &EmbeddedServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.env("PUMICE_SERVER", server.grpc.to_string());
    command.args(arguments).output().unwrap()
}

fn run_ok(server: &EmbeddedServer, arguments: &[&str]) -> String {
    let output = pumice(server, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn reservations_are_listed_and_released() {
    let server = EmbeddedServer::start();
    put_policy(&server.wire);
    let cluster = pb::Cluster {
        queues: vec![limited("q", 10), limited("r", 10)],
        ..Default::default()
    };
    server.wire.apply_batch(full_sync("kube", 1, cluster)).unwrap();
    let items = vec![ask(wants("ns/a", "q", 6), 3), ask(wants("ns/b", "r", 2), 1)];
    server.wire.admit(confirm(items)).unwrap();
    let list = run_ok(&server, &["reservations", "list"]);
    assert!(
        list.contains("ns/a") && list.contains("cpu=6") && list.contains("ns/b"),
        "{list}"
    );
    let list = run_ok(&server, &["reservations", "list", "--queue", "r"]);
    assert!(!list.contains("ns/a") && list.contains("cpu=2"), "{list}");
    let json = run_ok(&server, &["reservations", "list", "-o", "json"]);
    assert!(json.contains("\"attempt\": \"3\""), "{json}");
    let released = run_ok(&server, &["reservations", "release", "ns/a"]);
    assert_eq!(released, "ns/a: released cpu=6, of which cpu=6 was held back\n");
    let nothing = pumice(&server, &["reservations", "release", "ns/a"]);
    assert_eq!(nothing.status.code(), Some(1));
    let again = run_ok(&server, &["reservations", "release", "ns/a", "--attempt", "3"]);
    assert_eq!(
        again,
        "ns/a: nothing was reserved; attempts up to 3 are refused from now on\n"
    );
}
