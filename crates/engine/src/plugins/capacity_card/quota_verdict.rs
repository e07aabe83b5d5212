//! Verdict of a quota on a job or a task.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::corrected::JobAmounts;
use super::rejection::QuotaRejection;

/// A verdict on a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaVerdict {
    /// Why not; empty: permitted.
    pub rejections: Vec<QuotaRejection>,
    /// Of a job: the least that it needs, on the cards that it was given, whether it holds some of that already or not.
    pub min_amounts: Arc<QuotaAmounts>,
    /// Of a job, under `corrected`: its figures, if they are not those that are kept of it.
    pub(super) amounts: Option<Arc<JobAmounts>>,
    /// Of a permitted task: the cards that would do, best first, and how many tasks of its kind on each.
    pub cards: Vec<(Arc<str>, u64)>,
    /// Of a task: how many of its kind its queue still admits; `None`: without limit.
    pub headroom: Option<u64>,
}

impl QuotaVerdict {
    /// True if nothing stands against it.
    pub fn is_permitted(&self) -> bool {
        self.rejections.is_empty()
    }

    pub(super) fn rejected(rejection: QuotaRejection) -> Self {
        Self {
            rejections: vec![rejection],
            ..Self::default()
        }
    }
}
