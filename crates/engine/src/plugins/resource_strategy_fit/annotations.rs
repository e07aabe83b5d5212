//! Annotations with a pod's own strategy and weights.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plugins::json_object::{JsonObjectError, read_integers};

/// Annotation that names the strategy; empty or missing: the plugin's own applies.
pub(super) const SCORING_TYPE: &str = "volcano.sh/resource-strategy-scoring-type";
/// Annotation with the weights: a JSON object of integers by resource name.
pub(super) const WEIGHT: &str = "volcano.sh/resource-strategy-weight";

/// Error: weights that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WeightsError {
    /// Annotation without text.
    #[error("is missing or empty")]
    Missing,
    /// Text that cannot be read.
    #[error("cannot be read: {0}")]
    Json(#[from] JsonObjectError),
}

/// Reads the weights, for example `{"cpu": 1}`.
pub(super) fn parse_weights(text: &str) -> Result<BTreeMap<Arc<str>, i64>, WeightsError> {
    if text.is_empty() {
        return Err(WeightsError::Missing);
    }
    Ok(read_integers(text)?)
}
