//! Problem of one item of a request or one record of a batch.

use super::ErrorCode;
use crate::held_bytes::held_bytes;

/// Problem of one item or record. The other items of its request or batch are processed as usual.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Code, such as `QUANTITY_INVALID`.
    pub code: ErrorCode,
    /// Sentence for people: the cause and the remedy.
    pub message: String,
    /// Path from the request: `tasks[3].requests.items[cpu]`.
    pub field: String,
}

held_bytes! { Problem { message, field; code } }

impl Problem {
    /// Problem of `field`.
    pub fn new(code: ErrorCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            field: field.into(),
        }
    }

    /// Same problem with a longer path: `prefix.field`.
    #[must_use]
    pub fn within(mut self, prefix: &str) -> Self {
        self.field = if self.field.is_empty() {
            prefix.to_owned()
        } else {
            format!("{prefix}.{}", self.field)
        };
        self
    }
}
