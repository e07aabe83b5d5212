//! What is wrong with one item of a question or one record of a batch.

/// The kinds of problem, as far as a caller must tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The item is malformed or contradicts itself.
    Invalid,
    /// The item names something that is not there.
    NotFound,
    /// Something that exists stands against the item.
    FailedPrecondition,
    /// The item would exceed a limit.
    Exhausted,
    /// This server does not do that.
    Unserved,
}

/// What is wrong with one item or record; the others of its batch are not touched by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The kind.
    pub kind: ProblemKind,
    /// Stable word, such as `INVALID_QUANTITY`.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
    /// Path from the request: `tasks[3].requests.items[cpu]`.
    pub field: String,
}

impl Problem {
    /// A problem of `field`.
    pub fn new(kind: ProblemKind, reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason,
            message: message.into(),
            field: field.into(),
        }
    }

    /// The same problem seen from further outside: `prefix.field`.
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
