//! Family policy-yaml over gRPC: a dry run of `ReloadPolicy`.

use pumice::server::pb;
use serde_json::Value;

use super::policy_yaml::{self, Answer};
use super::question::report;
use super::{Bench, Verdict, cluster};

/// Judges one case: the text as it stands, never trimmed.
pub(crate) fn check(bench: &mut Bench, case: &Value) -> Verdict {
    let reply = bench.wire().reload_policy(pb::ReloadPolicyRequest {
        document: cluster::text(&case["text"]),
        dry_run: true,
        compatibility: "upstream".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    });
    match reply {
        Ok(reply) => {
            let loaded = reply.policy.unwrap_or_default().loaded_document;
            policy_yaml::check(case, &Answer::Loaded(&loaded))
        }
        Err(status) => {
            let findings = report(&status);
            let faults = findings
                .iter()
                .filter(|finding| finding.severity() == pb::Severity::Fault);
            let codes: Vec<&str> = faults.map(|fault| &*fault.code).collect();
            if codes.is_empty() {
                return Verdict::Fail {
                    expected: "an answer or a report".to_owned(),
                    got: status.to_string(),
                };
            }
            policy_yaml::check(case, &Answer::Refused(&codes))
        }
    }
}
