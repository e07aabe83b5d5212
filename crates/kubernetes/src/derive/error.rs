//! Errors of reading pods.

use pumice_engine::model::quantity::QuantityError;
use pumice_engine::model::resource_name::AmountError;

/// Error of a pod that cannot be read, or whose amounts cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// A field has another JSON type than the Kubernetes API gives it.
    #[error("{path}: not {expected}")]
    Type {
        /// Path of the field, such as `spec.containers[0].name`.
        path: String,
        /// Expected JSON type, such as `a string`.
        expected: &'static str,
    },
    /// A text is not a quantity.
    #[error("{path}: {error}")]
    Quantity {
        /// Path of the field.
        path: String,
        /// Error of the text.
        error: QuantityError,
    },
    /// A quantity is below 0.
    #[error("{path}: `{quantity}` is negative")]
    Negative {
        /// Path of the field.
        path: String,
        /// Text of the quantity.
        quantity: String,
    },
    /// An effective amount does not fit.
    #[error(transparent)]
    Amount(#[from] AmountError),
}
