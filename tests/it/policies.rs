//! Policies while the server runs: refused, compared, rolled back, read back.

use pumice::server::pb;
use tonic::Code;

use crate::support::records::{imagined, node, nodes, snapshot};
use crate::support::wire::Wire;
use crate::support::{Server, reason};
use crate::vectors::question::report;

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

fn active(wire: &Wire) -> pb::Policy {
    wire.get_policy(pb::GetPolicyRequest::default())
        .unwrap()
        .policy
        .unwrap_or_default()
}

/// The total of one node under the policy in force, and the version that the answer names.
fn answer(wire: &Wire) -> (f64, u64) {
    let question = pb::ScoreRequest {
        tasks: vec![imagined(&[("cpu", "1")])],
        ..Default::default()
    };
    let reply = wire.score(question).unwrap();
    let total = reply.answer.unwrap_or_default().items[0].totals[0];
    (total, reply.stamp.unwrap_or_default().policy_version)
}

fn start() -> Server {
    let server = Server::start();
    server
        .wire
        .apply_batch(snapshot("s", 1, nodes(vec![node("a", &[("cpu", "4")])])))
        .unwrap();
    server
}

#[test]
fn a_refused_document_leaves_the_old_one_serving_and_is_seen_everywhere() {
    let server = start();
    let wire = &server.wire;
    let version = wire
        .reload_policy(reload(&document(1)))
        .unwrap()
        .policy
        .unwrap_or_default()
        .version;
    assert_eq!(answer(wire), (75.0, version));
    let two_faults = document(2).replace("2\n", "{}\n") + "      sra: [1]\n";
    let status = wire.reload_policy(reload(&two_faults)).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let faults = report(&status);
    let places: Vec<_> = faults
        .iter()
        .map(|fault| (fault.severity(), fault.line, fault.column, &*fault.path))
        .collect();
    let path = "tiers[0].plugins[0].arguments";
    assert_eq!(
        places,
        [
            (
                pb::Severity::Fault,
                6,
                34,
                &*format!("{path}.resourceStrategyFitWeight")
            ),
            (pb::Severity::Fault, 7, 12, &*format!("{path}.sra")),
        ]
    );
    assert_eq!((answer(wire), active(wire).version), ((75.0, version), version));
    let (code, ready) = server.page("/readyz?verbose");
    assert_eq!(code, 200, "the old one serves on: {ready}");
    assert!(ready.contains("refused"), "{ready}");
    let (_, metrics) = server.page("/metrics");
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("pumice_policy_reloads_total")
                && line.contains("refused")
                && line.ends_with(" 1")),
        "{metrics}"
    );
    wire.reload_policy(reload(&document(3))).unwrap();
    let (_, ready) = server.page("/readyz?verbose");
    assert!(!ready.contains("refused"), "mended: {ready}");
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
fn warnings_are_told_and_are_faults_under_strict() {
    let server = start();
    let wire = &server.wire;
    let unknown = document(1) + "      resourceStrategyFitWieght: 2\n  - name: bin-pack\n";
    let taken = wire.reload_policy(reload(&unknown)).unwrap();
    let report_of_taken = taken.report.unwrap_or_default();
    assert_eq!(report_of_taken.not_served, ["bin-pack"]);
    assert!(
        report_of_taken
            .findings
            .iter()
            .all(|finding| finding.severity() == pb::Severity::Warning)
    );
    let lines: Vec<u32> = report_of_taken.findings.iter().map(|finding| finding.line).collect();
    assert!(lines.contains(&7) && lines.contains(&8), "{report_of_taken:?}");
    let strict = pb::ReloadPolicyRequest {
        strict: true,
        ..reload(&unknown)
    };
    let status = wire.reload_policy(strict).unwrap_err();
    assert!(report(&status).iter().any(|finding| finding.line == 7), "{status:?}");
}

#[test]
fn versions_are_compared_and_swapped_kept_and_brought_back() {
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
    assert_eq!(answer(wire), (75.0, back.version));
    history_is_kept(wire, back.version, second.version);
}

/// Newest first, one of them active, each with its document.
fn history_is_kept(wire: &Wire, active: u64, second: u64) {
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
fn each_name_has_its_own_policy_and_a_session_keeps_the_one_it_began_with() {
    let server = start();
    let wire = &server.wire;
    wire.reload_policy(reload(&document(1))).unwrap();
    let volcano = pb::ReloadPolicyRequest {
        name: "volcano".to_owned(),
        ..reload(&document(4))
    };
    wire.reload_policy(volcano).unwrap();
    let under = |name: &str| {
        let world = pb::World {
            policy: name.to_owned(),
            ..Default::default()
        };
        pb::Ground {
            ground: Some(pb::ground::Ground::World(world)),
            node_table: None,
        }
    };
    let total = |ground: pb::Ground| {
        let question = pb::ScoreRequest {
            ground: Some(ground),
            tasks: vec![imagined(&[("cpu", "1")])],
            ..Default::default()
        };
        wire.score(question)
            .map(|reply| reply.answer.unwrap_or_default().items[0].totals[0])
    };
    assert_eq!(
        (total(under("")).unwrap(), total(under("volcano")).unwrap()),
        (75.0, 300.0)
    );
    assert_eq!(total(under("nobodys")).unwrap_err().code(), Code::NotFound);
    let opened = wire.open_session(pb::OpenSessionRequest {
        ground: Some(under("volcano")),
        ..Default::default()
    });
    let session = opened.unwrap().session;
    wire.reload_policy(pb::ReloadPolicyRequest {
        name: "volcano".to_owned(),
        ..reload(&document(8))
    })
    .unwrap();
    let in_session = crate::support::records::step(&session, 0, Vec::new());
    assert_eq!(
        (total(in_session).unwrap(), total(under("volcano")).unwrap()),
        (300.0, 600.0)
    );
}
