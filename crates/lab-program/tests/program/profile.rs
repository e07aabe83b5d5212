//! Profiles.

use super::{err, lab, out};
use crate::support::authority::TestAuthority;

#[test]
fn a_load_takes_files_of_tls_from_a_profile() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let profile = format!(
        "default: lab\nprofiles:\n  lab: {{server: 'https://{}', metrics: 'https://{}', ca: ca.crt, certificate: admin.crt, key: admin.key, server_name: localhost}}\n",
        program.grpc, program.http
    );
    std::fs::write(authority.path("config.yaml"), profile).unwrap();
    let mut command = lab(&["bench", "--query", "empty", "--count", "1", "--warm-up", "0s"]);
    let bench = command
        .env("PUMICE_CLIENT_CONFIG", authority.path("config.yaml"))
        .output()
        .unwrap();
    assert!(
        bench.status.success() && !out(&bench).contains("not known"),
        "{}{}",
        out(&bench),
        err(&bench)
    );
}
