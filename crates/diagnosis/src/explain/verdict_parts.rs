//! Parts of a verdict, before they become its sentence.

use super::report::VerdictCode;

/// Parts of a verdict: its code, its sentence, and the changes that would let the subject start.
pub(super) struct VerdictParts {
    pub(super) code: VerdictCode,
    pub(super) sentence: String,
    pub(super) hints: Vec<String>,
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
        hints: hints.into_iter().collect(),
        impossible: false,
    }
}
