//! Outcomes of policy documents, for metrics.

use prometheus_client::encoding::EncodeLabelValue;

use pumice_state::{PolicyError, ReloadedPolicy};

/// Outcome of the activation of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReloadOutcome {
    /// The document is now active.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    accepted,
    /// The document was already active.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    unchanged,
    /// The document was rejected; the active version does not change.
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
