//! Input of a verdict, and its parts before they become its sentence.

use super::free_capacity::ClusterIdleCapacity;
use super::hint::Hint;
use super::report::{ExplainReport, VerdictCode};
use super::target::ResolvedTarget;
use super::trial::WaitingJob;
use pumice_console::pinned_client::KnownRecords;

/// Results and records that a verdict is built from.
#[derive(Clone, Copy)]
pub(super) struct VerdictInput<'a> {
    pub(super) report: &'a ExplainReport,
    pub(super) focus: &'a ResolvedTarget,
    pub(super) known: &'a KnownRecords,
    pub(super) rooms: &'a ClusterIdleCapacity,
    /// Tasks that Place was asked about, with their job; `None`: it was not asked.
    pub(super) attempted: Option<&'a WaitingJob>,
}

/// Parts of a verdict: its code, its sentence, and the changes that would let the subject start.
pub(super) struct VerdictParts {
    pub(super) code: VerdictCode,
    pub(super) sentence: String,
    pub(super) hints: Vec<Hint>,
    /// True: no end of other tasks lets the subject start.
    pub(super) impossible: bool,
}

pub(super) fn verdict_parts(
    code: VerdictCode,
    sentence: impl Into<String>,
    hints: impl IntoIterator<Item = String>,
) -> VerdictParts {
    VerdictParts {
        code,
        sentence: sentence.into(),
        hints: hints.into_iter().map(Hint::from).collect(),
        impossible: false,
    }
}
