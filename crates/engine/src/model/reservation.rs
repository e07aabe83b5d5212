//! Reservation: amounts that are reserved for a job and charged to its queue until the job's tasks hold them.

use std::sync::Arc;
use std::time::Duration;

/// Row of the admission ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Key: the job's name.
    pub job: Arc<str>,
    /// Incarnation of the job; empty: not reported.
    pub uid: Arc<str>,
    /// Attempt number. The caller raises it to confirm again, for example from 1 to 2.
    pub attempt: u64,
    /// Queue of the job.
    pub queue: Arc<str>,
    /// Reserved amounts, by name: milli-cores of `cpu`, bytes of `memory`, thousandths of cards. `|` joins the cards of
    /// a choice, such as `A100|H100`.
    pub amounts: NamedAmounts,
    /// Hash of the request's content, to distinguish requests.
    pub content: [u8; 16],
    /// Source that owns the job's records. The lease is paused while the source is stale. Empty: unknown, and the lease
    /// never pauses.
    pub source: Arc<str>,
    /// Time of confirmation, since 1970.
    pub confirmed: Duration,
    /// Duration of the lease without a sign from the caller.
    pub lease: Duration,
    /// Name of the policy that confirmed it.
    pub policy: Arc<str>,
}

/// Amounts by resource or card name, such as `[("cpu", 8000), ("NVIDIA-A100", 2000)]`.
pub type NamedAmounts = Vec<(Arc<str>, i128)>;

impl Reservation {
    /// True if the reservation may be of this incarnation: an unreported one matches any.
    pub fn matches_uid(&self, uid: &str) -> bool {
        same_incarnation(&self.uid, uid)
    }
}

/// True if both may be one incarnation: an unreported one matches any.
pub fn same_incarnation(one: &str, other: &str) -> bool {
    one.is_empty() || other.is_empty() || one == other
}
