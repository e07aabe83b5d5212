//! Problem of one item of a request or one record of a batch.

/// Kinds of problem that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// Item that is malformed or contradicts itself.
    Invalid,
    /// Item that names something that does not exist.
    NotFound,
    /// Item that contradicts the present state.
    FailedPrecondition,
    /// Item that would exceed a limit.
    Exhausted,
    /// Item that needs something that this server does not serve.
    Unserved,
}

/// Problem of one item or record. The other items of its request or batch are processed as usual.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Kind, which determines the gRPC code, such as `INVALID_ARGUMENT`.
    pub kind: ProblemKind,
    /// Stable code, such as `INVALID_QUANTITY`.
    pub reason: &'static str,
    /// Sentence for people: the cause and the remedy.
    pub message: String,
    /// Path from the request: `tasks[3].requests.items[cpu]`.
    pub field: String,
}

impl Problem {
    /// Problem of `field`.
    pub fn new(kind: ProblemKind, reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason,
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
