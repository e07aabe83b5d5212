//! Remedies of rejections: for each reason code the change that lets the task or job pass.

use std::collections::BTreeSet;

use crate::{CommandError, output};
use pumice_engine::model::RejectionCode;
use pumice_protocol::v1 as pb;

/// Remedy where a plugin gives a reason that has none of its own.
const OTHER: &str = "change the request, or the setting of the plugin that the reason names";

/// Remedy of a reason code, as a clause for people.
pub fn of_code(code: &str) -> &'static str {
    RejectionCode::from_name(code).map_or(OTHER, RejectionCode::remedy)
}

/// Prints the remedies of rejections, each once, in the order of the rejections.
pub fn print<'r>(rejections: impl IntoIterator<Item = &'r pb::Rejection>) -> Result<(), CommandError> {
    let mut printed = BTreeSet::new();
    let reasons = rejections.into_iter().filter_map(|rejection| rejection.reason.as_ref());
    for reason in reasons.filter(|reason| !reason.code.is_empty()) {
        if printed.insert(&reason.code) {
            output::paragraph(&format!("  → {}: {}", reason.code, of_code(&reason.code)))?;
        }
    }
    Ok(())
}
