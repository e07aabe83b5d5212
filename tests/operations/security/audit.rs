//! The audit log and the history of a policy: who did what, from where, and what came of it; no secret and no document.

use std::path::Path;

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use serde_json::Value;

use super::authority::{TestAuthority, runtime};
use crate::support::program::LoggedProcess;
use crate::support::{TestDirectory, document, fetch, until};

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

/// Lines that the calls of the test have to leave: action, outcome, identity and target.
const EXPECTED: [[&str; 4]; 10] = [
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
];

fn reload(name: &str, document: String) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        name: name.to_owned(),
        document,
        ..pb::ReloadPolicyRequest::default()
    }
}

/// Changes policies as an operator. Returns the versions of `default`, the newest first.
async fn change_policies(options: &ConnectOptions) -> Vec<pb::Policy> {
    let mut policies = ClientConnection::open_with(options).await.unwrap().policies;
    for comment in ["one", "two"] {
        policies.reload_policy(reload("", document(comment))).await.unwrap();
    }
    policies
        .reload_policy(reload("", "tiers: [".to_owned()))
        .await
        .unwrap_err();
    let mut rollback = pb::RollbackPolicyRequest::default();
    policies.rollback_policy(rollback.clone()).await.unwrap();
    // What changes nothing has no line.
    rollback.dry_run = true;
    policies.rollback_policy(rollback).await.unwrap();
    policies
        .reload_policy(reload("batch", document("three")))
        .await
        .unwrap();
    let request = pb::DeletePolicyRequest {
        name: "batch".to_owned(),
        ..pb::DeletePolicyRequest::default()
    };
    policies.delete_policy(request).await.unwrap();
    let list = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        ..pb::ListPoliciesRequest::default()
    };
    policies.list_policies(list).await.unwrap().into_inner().policies
}

/// Ends what is not there as an operator.
async fn end_things(options: &ConnectOptions) {
    let mut state = ClientConnection::open_with(options).await.unwrap().state;
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
}

/// Attempts what callers with a token of another role, and with none, may not.
async fn be_rejected(mut options: ConnectOptions) {
    options.token = Some("secretsecretsecretsecret".to_owned());
    let mut robot = ClientConnection::open_with(&options).await.unwrap();
    let request = pb::DeletePolicyRequest::default();
    robot.policies.delete_policy(request).await.unwrap_err();
    options.token = None;
    let mut nobody = ClientConnection::open_with(&options).await.unwrap();
    nobody
        .state
        .list_nodes(pb::ListNodesRequest::default())
        .await
        .unwrap_err();
}

#[test]
fn each_change_and_each_rejection_has_a_line_and_the_history_its_author() {
    let authority = TestAuthority::new(&["admin"]);
    std::fs::write(authority.path("i.yaml"), IDENTITIES).unwrap();
    std::fs::write(authority.path("t"), "secretsecretsecretsecret\n").unwrap();
    let (file, log) = (authority.text("i.yaml"), authority.text("audit.log"));
    let auth = ["--tls-client-auth", "optional"];
    let program = authority.serve(&[&["--identities-file", &file, "--audit-log", &log][..], &auth].concat());
    let runtime = runtime();
    let options = authority.options(program.grpc, Some("admin"));
    let history = runtime.block_on(async {
        let history = change_policies(&options).await;
        end_things(&options).await;
        be_rejected(authority.options(program.grpc, None)).await;
        history
    });
    let callers: Vec<&str> = history.iter().map(|version| version.caller.as_str()).collect();
    let operator = "operators@127.0.0.1";
    assert_eq!(callers, [operator, operator, operator, ""]);
    let origins: Vec<&str> = history.iter().map(|version| version.origin.as_str()).collect();
    let by_operator = "rpc:operators@127.0.0.1";
    assert_eq!(origins, ["rollback:2", by_operator, by_operator, "built-in"]);
    let path = authority.path("audit.log");
    until("all lines are written", || lines(&path).len() >= EXPECTED.len());
    let written = lines(&path);
    let fields = ["action", "outcome", "identity", "target"];
    let shown: Vec<[&str; 4]> = written
        .iter()
        .map(|line| fields.map(|field| line[field].as_str().unwrap()))
        .collect();
    assert_eq!(shown, EXPECTED);
    for line in &written {
        let length = line["time"].as_str().map(str::len);
        assert_eq!((line["address"].as_str(), length), (Some("127.0.0.1"), Some(24)));
    }
    let (first, robot) = (&written[0], &written[8]);
    assert_eq!(
        (&first["version"], first["hash"].as_str().map(str::len)),
        (&Value::from(2), Some(64))
    );
    let known = [first, robot].map(|line| line["known_by"].as_str().unwrap());
    assert_eq!(known, ["certificate", "token"]);
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
    let program = LoggedProcess::serve(&[&flags[..], &["--audit-file-bytes", "4096", "--audit-files", "2"]].concat());
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

#[test]
fn a_refused_attempt_on_the_http_front_has_a_line() {
    let folder = TestDirectory::new();
    folder.file("t", "secretsecretsecretsecret\n");
    let text = "identities:\n- {name: robot, token_file: t, roles: [read]}\nopen: [probes]\n";
    let file = folder.file("identities.yaml", text).display().to_string();
    let path = folder.0.join("audit.log");
    let log = path.display().to_string();
    let program = LoggedProcess::serve(&["--identities-file", &file, "--audit-log", &log]);
    let asks = ["/kube-scheduler/filter", "/volcano/vc/allocateFunc", "/metrics"];
    for page in asks {
        assert!(fetch(program.http, page).0.starts_with("http/1.1 401"), "{page}");
    }
    assert!(fetch(program.http, "/livez").0.starts_with("http/1.1 200"));
    until("the lines are written", || lines(&path).len() >= asks.len());
    let reported: Vec<[String; 5]> = lines(&path)
        .iter()
        .map(|line| {
            ["action", "outcome", "identity", "address", "target"].map(|key| line[key].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = asks.map(|page| ["call", "refused", "anonymous", "127.0.0.1", page].map(str::to_owned));
    assert_eq!(reported, expected);
    let reason = lines(&path)[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("needs the role decide"), "{reason}");
}
