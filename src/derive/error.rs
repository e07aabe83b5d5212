//! What can be wrong with a pod.

use crate::engine::model::quantity::{QuantityError, SumError};
use crate::engine::model::resource_name::AmountError;

/// A pod that cannot be read, or whose amounts cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// A field has another JSON type than the Kubernetes API gives it.
    #[error("{path}: not {expected}")]
    Type {
        /// Where, such as `spec.containers[0].name`.
        path: String,
        /// What stands there in a pod, such as `a string`.
        expected: &'static str,
    },
    /// A text that is not a quantity.
    #[error("{path}: {error}")]
    Quantity {
        /// Where.
        path: String,
        /// Why.
        error: QuantityError,
    },
    /// A quantity below 0.
    #[error("{path}: `{quantity}` is negative")]
    Negative {
        /// Where.
        path: String,
        /// The quantity.
        quantity: String,
    },
    /// An effective amount that does not fit.
    #[error(transparent)]
    Amount(#[from] AmountError),
    /// A sum over containers that needs too many digits.
    #[error("`{name}`: {error}")]
    Sum {
        /// The resource.
        name: String,
        /// Why.
        error: SumError,
    },
}
