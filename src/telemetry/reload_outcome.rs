//! Outcomes of policy documents, for metrics.

use prometheus_client::encoding::EncodeLabelValue;

use pumice_state::{PolicyError, ReloadedPolicy};

/// Outcome of a document that was to be put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReloadOutcome {
    /// The document is now in force.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    accepted,
    /// The document was in force already.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    unchanged,
    /// The document was rejected; the version in force stays in force.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    rejected,
}

impl ReloadOutcome {
    /// Outcome label of a reload: accepted, unchanged or rejected.
    pub fn of(reloaded: &Result<ReloadedPolicy, PolicyError>) -> Self {
        match reloaded {
            Ok(reloaded) if reloaded.unchanged => Self::unchanged,
            Ok(_) => Self::accepted,
            Err(_) => Self::rejected,
        }
    }
}
