//! Card quotas that cannot be read: the last good one stays in force, and everyone is told which queue it is.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{delta, full_sync, queue};
use crate::support::wire::BlockingClients;

const POLICY: &str = include_str!("../../../examples/cards/policy.yaml");
const QUOTA: &str = "volcano.sh/card.quota";
const GOOD: &str = r#"{"H100": 4}"#;
const BAD: &str = "{four}";
const CODE: &str = "CARD_QUOTA_INVALID";

fn queues(quotas: &[(&str, &str)]) -> pb::Cluster {
    let with_quota = |(name, quota): &(&str, &str)| pb::Queue {
        annotations: [(QUOTA.to_owned(), (*quota).to_owned())].into(),
        ..queue(name)
    };
    pb::Cluster {
        queues: quotas.iter().map(with_quota).collect(),
        ..pb::Cluster::default()
    }
}

fn reload(wire: &BlockingClients, compatibility: &str) -> Vec<(String, String)> {
    let request = pb::ReloadPolicyRequest {
        document: POLICY.to_owned(),
        compatibility: compatibility.to_owned(),
        ..Default::default()
    };
    let report = wire.reload_policy(request).unwrap().report.unwrap_or_default();
    let named = report.diagnostics.into_iter().filter(|found| found.code == CODE);
    named.map(|found| (found.code, found.path)).collect()
}

fn reasons(problems: &[pb::Problem]) -> Vec<(&str, &str)> {
    let quota = problems.iter().filter(|problem| problem.reason == CODE);
    quota
        .map(|problem| (problem.reason.as_str(), problem.field.as_str()))
        .collect()
}

/// The quota in force and the codes of problems, by queue.
fn listed(wire: &BlockingClients) -> Vec<(String, String, Vec<String>)> {
    let statuses = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
    let row = |status: pb::QueueStatus| {
        let mut record = status.queue.unwrap_or_default();
        let codes = status.invalid.into_iter().map(|problem| problem.reason).collect();
        let quota = record.annotations.remove(QUOTA).unwrap_or_default();
        (record.name, quota, codes)
    };
    statuses.into_iter().map(row).collect()
}

#[test]
fn the_last_good_quota_stays_when_one_cannot_be_read() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, "");
    wire.apply_batch(full_sync("s", 1, queues(&[("team", GOOD)]))).unwrap();
    for (number, bad) in (2..).zip([BAD, r#"{"H100": -1}"#, r#"{"H100": "4"}"#]) {
        let outcome = wire.apply_batch(delta("s", number, queues(&[("team", bad)]))).unwrap();
        let field = format!("batch.put.queues[0].annotations[{QUOTA}]");
        assert_eq!(reasons(&outcome.refused), [(CODE, field.as_str())], "{bad}");
        assert_eq!(
            listed(wire),
            [("team".to_owned(), GOOD.to_owned(), vec![CODE.to_owned()])]
        );
    }
    // A full sync changes nothing about that.
    let again = wire.apply_batch(full_sync("s", 5, queues(&[("team", BAD)]))).unwrap();
    assert_eq!(reasons(&again.refused).len(), 1);
    assert_eq!(listed(wire)[0].1, GOOD);
    let mended = wire
        .apply_batch(delta("s", 6, queues(&[("team", r#"{"H100": 2}"#)])))
        .unwrap();
    assert!(mended.refused.is_empty(), "{:?}", mended.refused);
    assert_eq!(
        listed(wire),
        [("team".to_owned(), r#"{"H100": 2}"#.to_owned(), Vec::new())]
    );
}

#[test]
fn a_quota_that_was_never_good_counts_as_empty_with_a_warning() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, "");
    let outcome = wire.apply_batch(full_sync("s", 1, queues(&[("team", BAD)]))).unwrap();
    let field = format!("batch.put.queues[0].annotations[{QUOTA}]");
    assert_eq!(reasons(&outcome.refused), []);
    assert_eq!(reasons(&outcome.warnings), [(CODE, field.as_str())]);
    assert_eq!(listed(wire)[0].1, BAD, "it is in force, and counts as empty");
}

#[test]
fn a_policy_without_strict_quotas_takes_the_queue_with_a_warning() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    reload(wire, "upstream");
    wire.apply_batch(full_sync("s", 1, queues(&[("team", GOOD)]))).unwrap();
    let outcome = wire.apply_batch(delta("s", 2, queues(&[("team", BAD)]))).unwrap();
    assert_eq!(
        (reasons(&outcome.refused).len(), reasons(&outcome.warnings).len()),
        (0, 1)
    );
    let place = format!("queues[team].annotations[{QUOTA}]");
    assert_eq!(
        reload(wire, ""),
        [(CODE.to_owned(), place)],
        "the policy that needs it names it"
    );
}
