//! Clusters and policies as users have them, on the command line: outcomes that were wrong once.

mod full_ancestor;
mod gated_jobs;
mod never_preempts;
mod port_leak;
mod quota_names;
mod reference;

use std::process::{Command, Output};

use pumice::server::pb;
use serde_json::Value;

use crate::support::EmbeddedServer;

/// Runs `pumice` beside the files of a report.
fn pumice(report: &str, arguments: &[&str]) -> Output {
    let folder = format!("{}/tests/data/reports/{report}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(arguments).current_dir(folder);
    command.env("XDG_CONFIG_HOME", "/nowhere");
    for variable in [
        "PUMICE_SERVER",
        "PUMICE_PROFILE",
        "PUMICE_CLIENT_CONFIG",
        "PUMICE_METRICS",
    ] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// Texts that a command writes.
fn texts(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Runs test cases of policies, which have to hold.
fn hold(report: &str, cases: &[&str]) {
    let output = pumice(report, &[&["policy", "test"], cases].concat());
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output));
}

/// Outcome of the only policy of a simulation by cycles that lasts for 300 seconds.
fn simulated(report: &str, cluster: &str, policy: &str) -> Value {
    let given = [
        "simulate", cluster, "--policy", policy, "--cycles", "--after", "300", "-o", "json",
    ];
    let output = pumice(report, &given);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["policies"][0].clone()
}

/// Puts a policy of one tier of plugins.
fn reload(server: &EmbeddedServer, plugins: &str, mode: &str) {
    let document = format!("actions: allocate\ntiers: [{{plugins: {plugins}}}]\npumice: {{compatibility: {mode}}}\n");
    let reload = pb::ReloadPolicyRequest {
        document,
        ..Default::default()
    };
    server.wire.reload_policy(reload).unwrap();
}
