//! A reservation: what a job was promised, kept back in its queue until its tasks hold it.

use std::sync::Arc;
use std::time::Duration;

/// A row of the admission ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Key: the job's name.
    pub job: Arc<str>,
    /// Its incarnation; empty: not said.
    pub uid: Arc<str>,
    /// Raised by the caller to ask anew.
    pub attempt: u64,
    /// Its queue.
    pub queue: Arc<str>,
    /// What was promised, by name: milli-cores of `cpu`, bytes of `memory`, thousandths of cards. Several acceptable
    /// cards are joined by `|`.
    pub amounts: NamedAmounts,
    /// Tells one request from another: a hash of what was asked for.
    pub content: [u8; 16],
    /// Owner of the job's records; its lease runs only while that source is heard. Empty: not known, it always runs.
    pub source: Arc<str>,
    /// When it was confirmed, since 1970.
    pub confirmed: Duration,
    /// How long it lives without a sign of its caller.
    pub lease: Duration,
    /// Name of the policy under which it was confirmed.
    pub policy: Arc<str>,
}

/// Amounts of a reservation, by name.
pub type NamedAmounts = Vec<(Arc<str>, i128)>;

impl Reservation {
    /// True if a job of this incarnation may be the one meant: one that is not said may be any.
    pub fn matches_uid(&self, uid: &str) -> bool {
        same_incarnation(&self.uid, uid)
    }
}

/// True if two may be one incarnation: one that is not said may be any.
pub fn same_incarnation(one: &str, other: &str) -> bool {
    one.is_empty() || other.is_empty() || one == other
}
