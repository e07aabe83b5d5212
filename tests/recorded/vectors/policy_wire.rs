//! Family policy-yaml over gRPC: a dry run of `ReloadPolicy`.

use pumice::server::pb;
use serde_json::Value;

use super::policy_yaml::{self, PolicyLoadResult};
use super::query::status_diagnostics;
use super::{VectorHarness, VectorVerdict, cluster};

/// Judges one case: the text as it is, never trimmed.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let reply = bench.wire().reload_policy(pb::ReloadPolicyRequest {
        document: cluster::text(&case["text"]),
        dry_run: true,
        compatibility: "upstream".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    });
    match reply {
        Ok(reply) => {
            let loaded = reply.policy.unwrap_or_default().loaded_document;
            policy_yaml::check(case, &PolicyLoadResult::Loaded(&loaded))
        }
        Err(status) => {
            let diagnostics = status_diagnostics(&status);
            let problems = diagnostics
                .iter()
                .filter(|diagnostic| diagnostic.severity() == pb::Severity::Error);
            let codes: Vec<&str> = problems.map(|problem| &*problem.code).collect();
            if codes.is_empty() {
                return VectorVerdict::Fail {
                    expected: "an answer or a report".to_owned(),
                    got: status.to_string(),
                };
            }
            policy_yaml::check(case, &PolicyLoadResult::Rejected(&codes))
        }
    }
}
