//! Execution of a query: threads, cancellation, and verdicts to use again.

use std::fmt;

use super::verdict_cache::VerdictReuse;

/// Execution of a query. The result does not depend on it.
#[derive(Clone, Copy)]
pub struct Parallelism<'a> {
    /// Number of threads that may evaluate classes in parallel. 0 is treated as 1.
    pub threads: usize,
    /// Returns true if the query was cancelled. Called before each chunk of nodes.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Verdicts of earlier queries to reuse. `None`: every node is evaluated.
    pub verdicts: Option<VerdictReuse<'a>>,
}

impl Parallelism<'_> {
    /// One thread without cancellation.
    pub const SEQUENTIAL: Self = Self {
        threads: 1,
        is_cancelled: &|| false,
        verdicts: None,
    };
}

impl fmt::Debug for Parallelism<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads with {:?}", self.threads, self.verdicts)
    }
}
