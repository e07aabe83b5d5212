//! Family podaffinity: constraints of pods about other pods, in filters and scores.

use serde_json::Value;

use super::{VectorHarness, VectorVerdict, nodeorder, predicates};

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    match case["request"]["kind"].as_str() {
        Some("predicates") => predicates::check(bench, case),
        Some("nodeorder") => nodeorder::check(bench, case),
        kind => VectorVerdict::NotServed(format!("kind {}", kind.unwrap_or_default())),
    }
}
