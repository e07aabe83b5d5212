//! Family nodegroup: filters and scores by the groups of nodes.

use serde_json::Value;

use super::{VectorHarness, VectorVerdict, nodeorder, predicates};

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    match case["request"]["kind"].as_str() {
        Some("predicates") => predicates::check(bench, case),
        _ => nodeorder::check(bench, case),
    }
}
