//! The audit log and the history of a policy: who did what, from where, and what came of it; no secret and no document.

use std::path::Path;

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use serde_json::Value;

use super::authority::{TestAuthority, runtime};
use crate::operate::program::LoggedProcess;
use crate::operate::{TestDirectory, document, fetch, until};

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

const IDENTITIES: &str = "
identities:
- {name: operators, certificates: [admin], roles: [admin, sync, read], sources: ['*']}
- {name: robot, token_file: t, roles: [read]}
";

#[test]
fn each_change_and_each_rejection_has_a_line_and_the_history_its_author() {
    let authority = TestAuthority::new(&["admin"]);
    std::fs::write(authority.path("i.yaml"), IDENTITIES).unwrap();
    std::fs::write(authority.path("t"), "secretsecretsecretsecret\n").unwrap();
    let (file, log) = (authority.text("i.yaml"), authority.text("audit.log"));
    let flags = [
        "--identities-file",
        &file,
        "--audit-log",
        &log,
        "--tls-client-auth",
        "optional",
    ];
    let program = authority.serve(&flags);
    let runtime = runtime();
    let options = authority.options(program.grpc, Some("admin"));
    let history = runtime.block_on(async {
        let ClientConnection {
            policies, mut state, ..
        } = ClientConnection::open_with(&options).await.unwrap();
        let mut policies = policies;
        for comment in ["one", "two"] {
            let request = pb::ReloadPolicyRequest {
                document: document(comment),
                ..pb::ReloadPolicyRequest::default()
            };
            policies.reload_policy(request).await.unwrap();
        }
        let bad = pb::ReloadPolicyRequest {
            document: "tiers: [".to_owned(),
            ..pb::ReloadPolicyRequest::default()
        };
        policies.reload_policy(bad).await.unwrap_err();
        policies
            .rollback_policy(pb::RollbackPolicyRequest::default())
            .await
            .unwrap();
        let dry = pb::RollbackPolicyRequest {
            dry_run: true,
            ..pb::RollbackPolicyRequest::default()
        };
        policies.rollback_policy(dry).await.unwrap();
        let other = pb::ReloadPolicyRequest {
            name: "batch".to_owned(),
            document: document("three"),
            ..pb::ReloadPolicyRequest::default()
        };
        policies.reload_policy(other).await.unwrap();
        let request = pb::DeletePolicyRequest {
            name: "batch".to_owned(),
            ..pb::DeletePolicyRequest::default()
        };
        policies.delete_policy(request).await.unwrap();
        let forget = pb::ForgetSourceRequest {
            source: "absent".to_owned(),
            force: false,
        };
        state.forget_source(forget).await.unwrap_err();
        let release = pb::ReleaseReservationRequest {
            job: "ns/job".to_owned(),
            ..pb::ReleaseReservationRequest::default()
        };
        state.release_reservation(release).await.unwrap();
        let mut robot = ConnectOptions {
            token: Some("secretsecretsecretsecret".to_owned()),
            ..authority.options(program.grpc, None)
        };
        let mut other = ClientConnection::open_with(&robot).await.unwrap();
        let request = pb::DeletePolicyRequest::default();
        other.policies.delete_policy(request).await.unwrap_err();
        robot.token = None;
        let mut nobody = ClientConnection::open_with(&robot).await.unwrap();
        nobody
            .state
            .list_nodes(pb::ListNodesRequest::default())
            .await
            .unwrap_err();
        let list = pb::ListPoliciesRequest {
            name: "default".to_owned(),
            ..pb::ListPoliciesRequest::default()
        };
        policies.list_policies(list).await.unwrap().into_inner().policies
    });
    let callers: Vec<&str> = history.iter().map(|version| version.caller.as_str()).collect();
    assert_eq!(
        callers,
        ["operators@127.0.0.1", "operators@127.0.0.1", "operators@127.0.0.1", ""]
    );
    let origins: Vec<&str> = history.iter().map(|version| version.origin.as_str()).collect();
    assert_eq!(
        origins,
        [
            "rollback:2",
            "rpc:operators@127.0.0.1",
            "rpc:operators@127.0.0.1",
            "built-in"
        ]
    );
    let path = authority.path("audit.log");
    until("all lines are written", || lines(&path).len() >= 10);
    let written = lines(&path);
    let shown: Vec<[&str; 4]> = written
        .iter()
        .map(|line| ["action", "outcome", "identity", "target"].map(|field| line[field].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ["reload-policy", "done", "operators", "default"],
            ["reload-policy", "done", "operators", "default"],
            ["reload-policy", "failed", "operators", "default"],
            ["rollback-policy", "done", "operators", "default"],
            ["reload-policy", "done", "operators", "batch"],
            ["delete-policy", "done", "operators", "batch"],
            ["forget-source", "failed", "operators", "absent"],
            ["release-reservation", "unchanged", "operators", "ns/job"],
            ["call", "refused", "robot", "/pumice.v1.PolicyService/DeletePolicy"],
            ["call", "refused", "anonymous", "/pumice.v1.StateService/ListNodes"],
        ]
    );
    for line in &written {
        assert_eq!(
            (line["address"].as_str(), line["time"].as_str().map(str::len)),
            (Some("127.0.0.1"), Some(24))
        );
    }
    assert_eq!(
        (&written[0]["version"], written[0]["hash"].as_str().map(str::len)),
        (&Value::from(2), Some(64))
    );
    assert_eq!(
        (written[0]["known_by"].as_str(), written[8]["known_by"].as_str()),
        (Some("certificate"), Some("token"))
    );
    let everything = std::fs::read_to_string(&path).unwrap() + &format!("{:?}", program.log());
    assert!(!everything.contains("secretsecret"), "a token is in a log");
}

#[test]
fn a_file_that_changes_has_a_line_and_the_files_rotate() {
    let folder = TestDirectory::new();
    let policy = folder.file("policy.yaml", &document("one"));
    let (policy_path, log) = (policy.display().to_string(), folder.0.join("audit.log"));
    let log_path = log.display().to_string();
    let flags = [
        "--policy-file",
        &policy_path,
        "--policy-poll-ms",
        "10",
        "--audit-log",
        &log_path,
    ];
    let program =
        LoggedProcess::serve(&[&flags[..], &["--audit-log-bytes", "4096", "--audit-log-files", "2"]].concat());
    until("the start has a line", || lines(&log).len() == 1);
    std::fs::write(&policy, document("two")).unwrap();
    until("the change has a line", || lines(&log).len() == 2);
    let last = lines(&log).pop().unwrap();
    assert_eq!(
        (last["identity"].as_str(), last["known_by"].as_str()),
        (Some("file"), Some("file"))
    );
    assert_eq!(last["origin"].as_str(), Some(&*format!("file:{policy_path}")));
    for number in 0..40 {
        std::fs::write(&policy, document(&format!("number {number}"))).unwrap();
        let text = format!("pumice_policy_version{{policy=\"default\"}} {}", number + 3);
        until("it is in force", || fetch(program.http, "/metrics").1.contains(&text));
    }
    until("files were full", || folder.0.join("audit.log.2").exists());
    assert!(!folder.0.join("audit.log.3").exists());
    for name in ["audit.log", "audit.log.1", "audit.log.2"] {
        let size = std::fs::metadata(folder.0.join(name)).unwrap().len();
        assert!(
            size <= 4_096 && !lines(&folder.0.join(name)).is_empty() || name == "audit.log",
            "{name}: {size}"
        );
    }
    assert!(
        fetch(program.http, "/metrics")
            .1
            .contains("pumice_audit_lost_lines_total 0")
    );
}
