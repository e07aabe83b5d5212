//! Policies of a running server: rejected, compared, rolled back, read back.

use pumice::server::pb;
use tonic::Code;

use crate::support::records::{full_sync, hypothetical_task, node, nodes};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, reason};
use crate::vectors::query::status_diagnostics;

fn document(weight: u32) -> String {
    format!(
        "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n    arguments:\n      \
         resourceStrategyFitWeight: {weight}\n"
    )
}

fn reload(document: &str) -> pb::ReloadPolicyRequest {
    pb::ReloadPolicyRequest {
        document: document.to_owned(),
        ..Default::default()
    }
}

fn active(wire: &BlockingClients) -> pb::Policy {
    wire.get_policy(pb::GetPolicyRequest::default())
        .unwrap()
        .policy
        .unwrap_or_default()
}

/// Total of one node under the policy in force, and the version that the result names.
fn score_and_version(wire: &BlockingClients) -> (f64, u64) {
    let query = pb::ScoreRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    let reply = wire.score(query).unwrap();
    let total = reply.result.unwrap_or_default().items[0].totals[0];
    (total, reply.metadata.unwrap_or_default().policy_version)
}

fn start() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    server
        .wire
        .apply_batch(full_sync("s", 1, nodes(vec![node("a", &[("cpu", "4")])])))
        .unwrap();
    server
}

#[test]
#[expect(clippy::too_many_lines, reason = "one document and every place that tells of it")]
fn a_rejected_document_leaves_the_old_one_serving_and_is_reported_everywhere() {
    let server = start();
    let wire = &server.wire;
    let version = wire
        .reload_policy(reload(&document(1)))
        .unwrap()
        .policy
        .unwrap_or_default()
        .version;
    assert_eq!(score_and_version(wire), (75.0, version));
    let two_errors = document(2).replace("2\n", "{}\n") + "      sra: [1]\n";
    let status = wire.reload_policy(reload(&two_errors)).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let path = "tiers[0].plugins[0].arguments";
    let message = status.message();
    assert!(
        message.contains(" rejected: 2 errors (6:34: ARGUMENT_TYPE: "),
        "{message}"
    );
    assert!(
        message.contains(&format!("; 7:12: ARGUMENT_TYPE: {path}.sra: ")),
        "{message}"
    );
    assert!(
        message.ends_with(&format!("); version {version} stays active")),
        "{message}"
    );
    let problems = status_diagnostics(&status);
    let places: Vec<_> = problems
        .iter()
        .map(|problem| (problem.severity(), problem.line, problem.column, &*problem.path))
        .collect();
    assert_eq!(
        places,
        [
            (
                pb::Severity::Error,
                6,
                34,
                &*format!("{path}.resourceStrategyFitWeight")
            ),
            (pb::Severity::Error, 7, 12, &*format!("{path}.sra")),
        ]
    );
    assert_eq!(
        (score_and_version(wire), active(wire).version),
        ((75.0, version), version)
    );
    let (code, ready) = server.page("/readyz?verbose");
    assert_eq!(code, 200, "the old one serves on: {ready}");
    assert!(ready.contains("rejected"), "{ready}");
    let (_, metrics) = server.page("/metrics");
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("pumice_policy_reloads_total")
                && line.contains("rejected")
                && line.ends_with(" 1")),
        "{metrics}"
    );
    wire.reload_policy(reload(&document(3))).unwrap();
    let (_, ready) = server.page("/readyz?verbose");
    assert!(!ready.contains("rejected"), "mended: {ready}");
}

#[test]
fn the_message_of_a_refused_policy_is_one_short_line() {
    let server = start();
    let many: Vec<String> = (0..40).map(|n| format!("bad\\u0007{n}{}, ", "x".repeat(300))).collect();
    let many = many.concat();
    let document = format!("actions: \"{many}allocate\"\n");
    let status = server.wire.reload_policy(reload(&document)).unwrap_err();
    let message = status.message();
    assert!(
        message.contains(" rejected: 40 errors (1:10: ACTION_UNKNOWN: "),
        "{message}"
    );
    assert!(message.contains("; and 37 more); "), "{message}");
    assert!(
        message.len() < 1500 && !message.chars().any(char::is_control),
        "{message:?}"
    );
}

#[test]
fn a_document_needs_actions_and_a_dry_run_changes_nothing() {
    let server = start();
    let wire = &server.wire;
    let before = active(wire);
    let no_actions = document(1).replace("actions: allocate\n", "");
    assert_eq!(
        wire.reload_policy(reload(&no_actions)).unwrap_err().code(),
        Code::InvalidArgument
    );
    let tried = wire
        .reload_policy(pb::ReloadPolicyRequest {
            dry_run: true,
            ..reload(&document(7))
        })
        .unwrap();
    let would = tried.policy.unwrap_or_default();
    assert_eq!((would.version, would.active), (0, false));
    assert!(
        would.effective_document.contains("resourceStrategyFitWeight: 7"),
        "{}",
        would.effective_document
    );
    assert!(tried.difference.contains('+') && tried.difference.contains("resourceStrategyFitWeight: 7"));
    assert_eq!(active(wire), before);
    let (_, ready) = server.page("/readyz?verbose");
    let dry = pb::ReloadPolicyRequest {
        dry_run: true,
        ..reload("actions: [")
    };
    assert_eq!(wire.reload_policy(dry).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(server.page("/readyz?verbose").1, ready, "a dry run is nobody's concern");
}

#[test]
fn warnings_are_reported_and_are_errors_under_strict() {
    let server = start();
    let wire = &server.wire;
    let unknown = document(1) + "      resourceStrategyFitWieght: 2\n  - name: bin-pack\n";
    let taken = wire.reload_policy(reload(&unknown)).unwrap();
    let report_of_taken = taken.report.unwrap_or_default();
    assert_eq!(report_of_taken.unserved_plugins, ["bin-pack"]);
    assert!(
        report_of_taken
            .diagnostics
            .iter()
            .all(|diagnostic| diagnostic.severity() == pb::Severity::Warning)
    );
    let lines: Vec<u32> = report_of_taken
        .diagnostics
        .iter()
        .map(|diagnostic| diagnostic.line)
        .collect();
    assert!(lines.contains(&7) && lines.contains(&8), "{report_of_taken:?}");
    let strict = pb::ReloadPolicyRequest {
        strict: true,
        ..reload(&unknown)
    };
    let status = wire.reload_policy(strict).unwrap_err();
    assert!(
        status_diagnostics(&status)
            .iter()
            .any(|diagnostic| diagnostic.line == 7),
        "{status:?}"
    );
}

#[test]
fn versions_are_compared_and_swapped_stored_and_rolled_back() {
    let server = start();
    let wire = &server.wire;
    let first = wire
        .reload_policy(reload(&document(1)))
        .unwrap()
        .policy
        .unwrap_or_default();
    let expecting = |version, document: &str| pb::ReloadPolicyRequest {
        expected_version: Some(version),
        ..reload(document)
    };
    let second = wire.reload_policy(expecting(first.version, &document(2))).unwrap();
    assert!(
        second
            .difference
            .lines()
            .any(|line| line.starts_with('-') && line.ends_with("resourceStrategyFitWeight: 1"))
    );
    let second = second.policy.unwrap_or_default();
    let lost = wire.reload_policy(expecting(first.version, &document(3))).unwrap_err();
    assert_eq!(lost.code(), Code::Aborted, "{}", reason(&lost));
    let same = wire.reload_policy(reload(&document(2))).unwrap();
    assert!(same.unchanged);
    assert_eq!(active(wire).version, second.version);
    let back = wire
        .rollback_policy(pb::RollbackPolicyRequest::default())
        .unwrap()
        .policy
        .unwrap_or_default();
    assert_eq!(
        (&back.document, &*back.origin),
        (&document(1), &*format!("rollback:{}", first.version))
    );
    assert!(back.version > second.version, "history is not rewritten");
    assert_eq!(score_and_version(wire), (75.0, back.version));
    assert_history_is_stored(wire, back.version, second.version);
}

/// Checks the history: newest first, one version active, each with its document.
fn assert_history_is_stored(wire: &BlockingClients, active: u64, second: u64) {
    let of_name = pb::ListPoliciesRequest {
        name: "default".to_owned(),
        ..Default::default()
    };
    let history = wire.list_policies(of_name).unwrap().policies;
    let versions: Vec<_> = history.iter().map(|policy| policy.version).collect();
    assert!(
        versions.windows(2).all(|pair| pair[0] > pair[1]),
        "newest first: {versions:?}"
    );
    let in_force = history
        .iter()
        .filter(|policy| policy.active)
        .map(|policy| policy.version);
    assert_eq!(in_force.collect::<Vec<_>>(), [active]);
    let old = pb::GetPolicyRequest {
        version: second,
        ..Default::default()
    };
    assert_eq!(
        wire.get_policy(old).unwrap().policy.unwrap_or_default().document,
        document(2)
    );
}

#[test]
fn each_name_has_its_own_policy_and_a_session_uses_its_first_version() {
    let server = start();
    let wire = &server.wire;
    wire.reload_policy(reload(&document(1))).unwrap();
    let volcano = pb::ReloadPolicyRequest {
        name: "volcano".to_owned(),
        ..reload(&document(4))
    };
    wire.reload_policy(volcano).unwrap();
    let under = |name: &str| {
        let snapshot = pb::LatestRef {
            policy: name.to_owned(),
            ..Default::default()
        };
        pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
            ..pb::EvaluationRef::default()
        }
    };
    let total = |evaluation_ref: pb::EvaluationRef| {
        let query = pb::ScoreRequest {
            against: Some(evaluation_ref),
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            ..Default::default()
        };
        wire.score(query)
            .map(|reply| reply.result.unwrap_or_default().items[0].totals[0])
    };
    assert_eq!(
        (total(under("")).unwrap(), total(under("volcano")).unwrap()),
        (75.0, 300.0)
    );
    assert_eq!(total(under("nobodys")).unwrap_err().code(), Code::NotFound);
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(under("volcano")),
        ..Default::default()
    });
    let session = opened.unwrap().session;
    wire.reload_policy(pb::ReloadPolicyRequest {
        name: "volcano".to_owned(),
        ..reload(&document(8))
    })
    .unwrap();
    let in_session = crate::support::records::session_ref(&session, 0, Vec::new());
    assert_eq!(
        (total(in_session).unwrap(), total(under("volcano")).unwrap()),
        (300.0, 600.0)
    );
}
