//! Forgetting of a source: request and result.

use std::sync::Arc;

use pumice_engine::Revision;

/// Request to forget a source.
#[derive(Clone, Debug)]
pub struct ForgetSource {
    /// Name of the source.
    pub source: Arc<str>,
    /// Forget the source even if it has sent a batch within `source_stale`.
    pub force: bool,
}

/// Numbers of what went with a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenSource {
    /// First revision without its records.
    pub revision: Revision,
    /// Number of records.
    pub records: usize,
    /// Number of reservations.
    pub reservations: usize,
}
