//! Path of a queue: its account and, with `cardHierarchy`, the accounts of the queues above it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::path_usage::{OwnPart, PathUsage};
use super::state::CapacityState;
use crate::model::Problem;
use crate::plugins::capacity_card::{QueueAccount, QuotaRejection, queue_unknown, rejection};

/// Most queues between a queue and the root.
const MAX_DEPTH: usize = 64;
/// The queue above all; it need not be there.
const ROOT: &str = "root";

/// A queue on a line.
#[derive(Clone, Debug)]
pub(super) struct QueueLevel<'a> {
    pub(super) queue: &'a Arc<str>,
    pub(super) account: &'a QueueAccount,
    /// True if the queue's quota of cards applies: where one is set; if no queue has one, the first queue may hold none.
    pub(super) limits_cards: bool,
}

/// Queue and the queues above it, from below.
#[derive(Clone, Debug)]
pub(super) struct QueuePath<'a> {
    state: &'a CapacityState,
    pub(super) levels: SmallVec<[QueueLevel<'a>; 1]>,
    /// Why the line does not reach the root.
    broken_reason: Option<String>,
}

impl CapacityState {
    /// Names of a queue and, with `cardHierarchy`, of those above it; and why they do not reach the root.
    pub(super) fn queue_chain<'a>(&'a self, queue: &'a Arc<str>) -> (SmallVec<[&'a Arc<str>; 1]>, Option<String>) {
        let mut line: SmallVec<[&Arc<str>; 1]> = SmallVec::from_iter([queue]);
        if !self.config.hierarchy {
            return (line, None);
        }
        while let Some(below) = line.last().and_then(|below| self.opening_state.queues().get(below)) {
            let parent = &below.record.parent;
            if parent.is_empty() || **parent == *below.record.name && **parent == *ROOT {
                break;
            }
            if line.contains(&parent) || line.len() > MAX_DEPTH {
                let why = format!("the path above it does not end: it comes to `{parent}` again");
                return (line, Some(why));
            }
            if !self.opening_state.queues().contains(parent) {
                let why = (**parent != *ROOT).then(|| format!("there is no queue `{parent}`, which is above it"));
                return (line, why);
            }
            line.push(parent);
        }
        (line, None)
    }

    /// Path of a queue.
    ///
    /// # Errors
    /// The queue is not there.
    pub(super) fn queue_path<'a>(&'a self, queue: &'a Arc<str>) -> Result<QueuePath<'a>, Problem> {
        let (line, broken_reason) = self.queue_chain(queue);
        let level = |queue: &'a Arc<str>| {
            let account = self.account(queue).ok_or_else(|| queue_unknown(queue))?;
            Ok(QueueLevel {
                queue,
                account,
                limits_cards: account.limits.cards_configured,
            })
        };
        let levels: Result<SmallVec<[_; 1]>, Problem> = line.into_iter().map(level).collect();
        let mut levels = levels?;
        let is_said = levels.iter().any(|level| level.limits_cards);
        if let Some(first) = levels.first_mut().filter(|_| !is_said) {
            first.limits_cards = true;
        }
        Ok(QueuePath {
            state: self,
            levels,
            broken_reason,
        })
    }
}

impl QueuePath<'_> {
    /// Reasons that do not depend on amounts.
    pub(super) fn closed_rejections(&self) -> Vec<QuotaRejection> {
        let mut rejections = Vec::new();
        let Some(own) = self.levels.first() else {
            return rejections;
        };
        let broken = self.broken_reason.iter();
        rejections.extend(broken.map(|why| rejection::path_invalid(own.queue, why)));
        let closed = self.levels.iter().filter(|level| !level.account.limits.is_open());
        rejections.extend(closed.map(|level| rejection::queue_not_open(level.queue)));
        if !self.is_configured() {
            rejections.push(rejection::empty_capability(own.queue));
        }
        rejections
    }

    /// True if anything says what the queue may hold.
    pub(super) fn is_configured(&self) -> bool {
        self.levels.iter().any(|level| level.account.limits.configured)
    }

    /// Amounts in use for a job: held, reserved, and not elastic; without the part of the job itself.
    pub(super) fn usage_for_job<'a>(&'a self, own: &'a OwnPart) -> PathUsage<'a> {
        PathUsage::new(self.state, &self.levels, Some(own))
    }

    /// Amounts in use for a task: what is held.
    pub(super) fn usage_for_task(&self) -> PathUsage<'_> {
        PathUsage::new(self.state, &self.levels, None)
    }
}
